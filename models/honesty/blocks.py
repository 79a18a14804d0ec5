"""How sure a day's mean or median is, where rows that come one after another are alike.

Rows in time order are cut into blocks of equal size; the spread of the blocks' values, not that of the rows, says how
much the day's value would differ on another day like it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from models.metrics import FloatArray

MIN_BLOCKS, MAX_BLOCKS, BLOCK_ROWS = 8, 20, 25
MAX_CORRELATION = 0.8
Statistic = Callable[[FloatArray], float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its standard error from `blocks` blocks; NaN and 0 where the rows are too few for it."""

    value: float
    error: float
    blocks: int
    rows: int

    @property
    def tested(self) -> bool:
        """Whether there are rows enough to say how sure the value is."""
        return self.blocks >= MIN_BLOCKS

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Student's interval; NaN where it is not tested."""
        if not self.tested:
            return math.nan, math.nan
        half = _t_quantile(0.5 + confidence / 2.0, self.blocks - 1) * self.error
        return self.value - half, self.value + half

    def beyond(self, expected: float, margin: float) -> float | None:
        """p-value of `|true value - expected| <= margin`, None where it is not tested."""
        if not self.tested:
            return None
        excess = abs(self.value - expected) - margin
        if excess <= 0.0:
            return 1.0
        return 0.0 if self.error == 0.0 else min(1.0, 2.0 * _t_tail(excess / self.error, self.blocks - 1))

    def above(self, expected: float) -> float | None:
        """One-sided p-value of `true value <= expected`, None where it is not tested."""
        if not self.tested:
            return None
        excess = self.value - expected
        return (0.0 if excess > 0.0 else 1.0) if self.error == 0.0 else _t_tail(excess / self.error, self.blocks - 1)


def estimate(values: FloatArray, statistic: Statistic, *, least_error: float = 0.0) -> Estimate:
    """A statistic of `values`, shape (n,), n > 0, in time order.

    `least_error`: what the standard error is at least, such as the binomial one of a share. Blocks that resemble their
    neighbours (positive correlation at lag 1) count as fewer.
    """
    rows = len(values)
    blocks = min(MAX_BLOCKS, rows // BLOCK_ROWS)
    whole = float(statistic(values))
    if blocks < MIN_BLOCKS:
        return Estimate(whole, math.nan, 0, rows)
    parts = np.array([statistic(part) for part in np.array_split(values, blocks)])
    error = float(np.std(parts, ddof=1)) / math.sqrt(blocks) * _inflation(parts)
    return Estimate(whole, max(error, least_error), blocks, rows)


def mean(values: FloatArray) -> float:
    """The mean of values, shape (n,)."""
    return float(np.mean(values))


def median(values: FloatArray) -> float:
    """The median of values, shape (n,)."""
    return float(np.median(values))


def _inflation(parts: FloatArray) -> float:
    """Factor on the standard error of the mean of correlated blocks."""
    away = parts - parts.mean()
    power = float(away @ away)
    if power == 0.0:
        return 1.0
    correlation = min(MAX_CORRELATION, max(0.0, float(away[1:] @ away[:-1]) / power))
    return math.sqrt((1.0 + correlation) / (1.0 - correlation))


def _t_tail(t: float, degrees: int) -> float:
    from scipy.special import stdtr

    return float(stdtr(degrees, -t))


def _t_quantile(level: float, degrees: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees, level))
