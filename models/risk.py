"""Spread of what happened around what was predicted, as SloRisk uses it."""

from __future__ import annotations

import numpy as np

from features.errors import ModelError
from models.metrics import MAD_TO_SIGMA, FloatArray

MIN_SIGMA, MAX_SIGMA = 0.05, 1.0
MIN_ROWS = 20


def fit_risk(realised: FloatArray, predicted: FloatArray) -> float:
    """Robust standard deviation of log(realised / predicted) around 0, within 0.05..1. Both shape (n,), one unit.

    Around 0, not around its median: a prediction that is always off is a risk too. Pairs where either is not positive
    and finite are left out. ModelError if shapes differ or fewer than 20 pairs remain.
    """
    if realised.shape != predicted.shape or realised.ndim != 1:
        raise ModelError("realised and predicted must have one shape (n,)", value=(realised.shape, predicted.shape))
    usable = np.isfinite(realised) & np.isfinite(predicted) & (realised > 0) & (predicted > 0)
    if int(np.count_nonzero(usable)) < MIN_ROWS:
        raise ModelError(
            f"a risk spread needs at least {MIN_ROWS} finished requests with a prediction",
            value=int(np.count_nonzero(usable)),
        )
    size = np.abs(np.log(realised[usable] / predicted[usable]))
    return min(MAX_SIGMA, max(MIN_SIGMA, MAD_TO_SIGMA * float(np.median(size))))
