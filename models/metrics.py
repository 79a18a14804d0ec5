"""How estimators are scored: pinball loss, coverage with its interval, relative errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from features.errors import ModelError

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation × this = standard deviation of a normal distribution."""


@dataclass(frozen=True, slots=True)
class ApeSummary:
    """Relative errors predicted/true - 1 as fractions: median and 90th percentile of their size, signed median."""

    count: int
    median_ape_frac: float
    p90_ape_frac: float
    signed_median_frac: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of outcomes at or below their predicted quantile, with its 95 % Wilson interval."""

    count: int
    covered_frac: float
    low_frac: float
    high_frac: float


def ape_summary(predicted: FloatArray, true: FloatArray) -> ApeSummary:
    """Relative errors of `predicted` against `true`, both shape (n,) and > 0. ModelError: shapes differ, n = 0."""
    _same_shape(predicted, true)
    error = predicted / true - 1.0
    size = np.abs(error)
    return ApeSummary(
        count=int(error.size),
        median_ape_frac=float(np.median(size)),
        p90_ape_frac=float(np.quantile(size, 0.9)),
        signed_median_frac=float(np.median(error)),
    )


def pinball_loss(true: FloatArray, quantile: FloatArray, *, level: float) -> float:
    """Mean pinball loss (Koenker & Bassett 1978) in the unit of the inputs, both shape (n,).

    ModelError if shapes differ, n = 0, or level is outside (0, 1).
    """
    _same_shape(quantile, true)
    _level(level)
    above = true - quantile
    return float(np.mean(np.maximum(level * above, (level - 1.0) * above)))


def coverage(true: FloatArray, quantile: FloatArray) -> Coverage:
    """Share of `true <= quantile`, both shape (n,). ModelError if shapes differ or n = 0."""
    _same_shape(quantile, true)
    return wilson(int(np.count_nonzero(true <= quantile)), int(true.size))


def wilson(hits: int, count: int, *, confidence: float = 0.95) -> Coverage:
    """A share with its Wilson interval. ModelError unless 0 <= hits <= count and count > 0."""
    if not 0 <= hits <= count or count == 0:
        raise ModelError("`0 <= hits <= count` and `count > 0` must hold", value=(hits, count))
    _level(confidence)
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    share = hits / count
    scale = 1.0 + z * z / count
    centre = (share + z * z / (2.0 * count)) / scale
    half = z * math.sqrt(share * (1.0 - share) / count + z * z / (4.0 * count * count)) / scale
    return Coverage(count, share, max(0.0, centre - half), min(1.0, centre + half))


def robust_sigma(values: FloatArray) -> float:
    """Standard deviation of the bulk of `values`, shape (n,), from the median absolute deviation; 0 if n < 2."""
    if values.size < 2:
        return 0.0
    return MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values))))


def _same_shape(predicted: FloatArray, true: FloatArray) -> None:
    if predicted.shape != true.shape or true.ndim != 1 or true.size == 0:
        raise ModelError(
            "predicted and true must have one equal shape (n,) with n > 0", value=(predicted.shape, true.shape)
        )


def _level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ModelError("`0 < level < 1` must hold", value=level)
