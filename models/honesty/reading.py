"""What a night reads off the estimators in force: one number a group, beside what was expected of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

ESTIMATORS = ("length", "prefill", "decode", "transfer", "cache")
ALL = "*"
"""The group of all rows of an estimator."""
DRIFT, NEW_GROUP = "drift", "new_group"
"""Kinds of alarm: what was learned does not hold any more; nothing was ever learned of this."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One measure of one group on one day.

    `measure`: `coverage_q90` (share of answers within the 0.9 quantile), `median_error` (of predicted / seen - 1), and
    so on; `docs/estimators.md` lists them. `low`, `high`: 95 % interval, None = too few rows. `bar`: how far `value`
    may lie from `expected`; None = the measure is shown and raises no alarm. `p`: of lying within the bar, None = not
    tested. `alarm`: a kind of alarm or None. `sentence`: for people.
    """

    estimator: str
    group: str
    measure: str
    value: float
    rows: int
    low: float | None = None
    high: float | None = None
    expected: float | None = None
    bar: float | None = None
    p: float | None = None
    alarm: str | None = None
    sentence: str = ""


def known(value: float) -> float | None:
    """None for NaN."""
    return None if math.isnan(value) else value


def percent(value: float) -> str:
    """A fraction as signed percent."""
    return f"{100.0 * value:+.1f} %"
