"""Errors of step times as rows and bars: median and 90th percentile of |predicted / true - 1| in percent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.estimators.bars import Bar, Row
from models.metrics import FloatArray

Errors = dict[str, list[FloatArray]]
"""Method -> absolute errors in percent, a piece a left-out setting."""


def error(predicted: FloatArray, true: FloatArray) -> FloatArray:
    """Absolute relative errors in percent."""
    return np.abs(predicted / true - 1.0) * 100.0


def figures(pieces: list[FloatArray]) -> Mapping[str, float]:
    """Median and P90 over all pieces together."""
    every = np.concatenate(pieces)
    return {"median": float(np.median(every)), "p90": float(np.quantile(every, 0.9)), "rows": float(every.size)}


def rows(data: str, protocol: str, errors: Errors) -> list[Row]:
    """A row a method."""
    return [Row(data, protocol, method, figures(pieces)) for method, pieces in errors.items()]


def bars(name: str, pieces: list[FloatArray], median: float, p90: float | None = None) -> list[Bar]:
    """A bar on the median and, if it is given, one on the P90."""
    found = figures(pieces)
    made = [Bar(f"{name}: median %", found["median"], median)]
    return made if p90 is None else [*made, Bar(f"{name}: P90 %", found["p90"], p90)]
