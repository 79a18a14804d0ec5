"""Probability that a target is met, as a table that every router can evaluate without a maths library."""

from __future__ import annotations

import math

GRID_POINTS = 257
GRID_STEPS_PER_UNIT = 64
"""The table stands at x = target / predicted = 0, 1/64 … 4."""
DECIMALS = 12


def risk_table(sigma: float) -> tuple[float, ...]:
    """Φ(ln x / sigma) at the grid, 12 decimals: P(realised <= target) for a log-normal error around the prediction.

    sigma = 0 is the step at x = 1 (met if the prediction is at most the target).
    """
    values = [0.0]
    for at in range(1, GRID_POINTS):
        x = at / GRID_STEPS_PER_UNIT
        if sigma > 0:
            values.append(round(0.5 * math.erfc(-math.log(x) / (sigma * math.sqrt(2.0))), DECIMALS))
        else:
            values.append(1.0 if x >= 1.0 else 0.0)
    return tuple(values)


def met(target_s: float | None, predicted_s: float, table: tuple[float, ...]) -> float:
    """Probability that the target is met; 1 without a target, 0 if it has passed; NaN if the prediction is unknown."""
    if target_s is None:
        return 1.0
    if target_s <= 0.0:
        return 0.0
    if predicted_s <= 0.0:
        return table[GRID_POINTS - 1]
    if math.isnan(predicted_s):
        return math.nan
    position = target_s / predicted_s * GRID_STEPS_PER_UNIT
    if position >= GRID_POINTS - 1:
        return table[GRID_POINTS - 1]
    below = math.floor(position)
    return table[below] + (position - below) * (table[below + 1] - table[below])
