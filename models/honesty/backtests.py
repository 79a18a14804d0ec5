"""Tests of a predicted quantile against a series of hits: is the share right, and do misses come alone?"""

from __future__ import annotations

import math

import numpy as np

from models.metrics import BoolArray

MIN_ROWS = 100


def kupiec(missed: BoolArray, level: float) -> float | None:
    """p-value of a share of misses of 1 - level: Kupiec's proportion of failures. None under 100 rows."""
    rows, misses = int(missed.size), int(np.count_nonzero(missed))
    if rows < MIN_ROWS:
        return None
    share = misses / rows
    ratio = _log_likelihood(misses, rows - misses, share) - _log_likelihood(misses, rows - misses, 1.0 - level)
    return _chi2_tail(2.0 * ratio)


def christoffersen(missed: BoolArray) -> float | None:
    """p-value of misses that do not depend on the row before, `missed` in time order.

    None under 100 rows or where nothing, or everything, was missed.
    """
    before, after = missed[:-1], missed[1:]
    rows, misses = int(after.size), int(np.count_nonzero(after))
    if missed.size < MIN_ROWS or misses in (0, rows) or not before.any() or before.all():
        return None
    apart = 0.0
    for state in (False, True):
        here = after[before == state]
        hit = int(np.count_nonzero(here))
        apart += _log_likelihood(hit, int(here.size) - hit, hit / here.size)
    return _chi2_tail(2.0 * (apart - _log_likelihood(misses, rows - misses, misses / rows)))


def _log_likelihood(misses: int, others: int, share: float) -> float:
    found = 0.0
    if misses:
        found += misses * math.log(share)
    if others:
        found += others * math.log(1.0 - share)
    return found


def _chi2_tail(value: float) -> float:
    """Upper tail of chi-squared with one degree of freedom."""
    return math.erfc(math.sqrt(max(0.0, value) / 2.0))
