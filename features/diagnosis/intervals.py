"""Intervals of shares and ratios, at 95 %."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Z = 1.959963984540054
_RESAMPLES = 1000
_MANY_BLOCKS = 20
_LONGEST = 6
"""Sums of ten seconds in a block at most."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval and the observations behind it (`n` requests, blocks or rows, as the text says)."""

    value: float
    low: float
    high: float
    n: int


def wilson(hits: float, n: int) -> Estimate | None:
    """A share of n independent observations; None without any."""
    if n <= 0:
        return None
    share, z2 = hits / n, Z * Z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half), n)


def ratio_of_sums(rows: Sequence[Mapping[str, Any]], over: str, under: str, *, seed: int = 1) -> Estimate | None:
    """sum(over) / sum(under) over rows in order of time, drawn in blocks of up to a minute; None if under is 0.

    Fewer than two blocks say nothing about the spread: the interval is then from minus to plus infinity.
    """
    top, bottom = (np.array([float(row[key]) for row in rows]) for key in (over, under))
    if not bottom.sum() > 0:
        return None
    value = float(top.sum() / bottom.sum())
    size = next((k for k in range(_LONGEST, 1, -1) if len(top) // k >= _MANY_BLOCKS), 1)
    starts = np.arange(0, len(top), size)
    top, bottom = np.add.reduceat(top, starts), np.add.reduceat(bottom, starts)
    n = len(top)
    if n < 2:
        return Estimate(value, -math.inf, math.inf, n)
    draws = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=_RESAMPLES)
    weights = draws @ bottom
    drawn = (draws @ top)[weights > 0] / weights[weights > 0]
    low, high = (float(q) for q in np.quantile(drawn, (0.025, 0.975)))
    return Estimate(value, low, high, n)


def median_factor(effect: float, mad: float, rows: int, base: float, *, per_row: float) -> Estimate:
    """exp(effect - base) of a median of logarithms. `per_row`: rows that count as one, since neighbours are alike."""
    normal = 1.4826 * 1.2533  # median absolute deviation -> sigma -> standard error of a median
    half = Z * normal * mad / math.sqrt(max(rows / per_row, 1.0))
    middle = effect - base
    return Estimate(math.exp(middle), math.exp(middle - half), math.exp(middle + half), rows)
