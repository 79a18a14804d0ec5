"""How far single steps lie off their law: the standard deviation, and quantiles by load."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from models.metrics import MAD_TO_SIGMA, BoolArray, FloatArray, robust_sigma
from models.portable.steps import Tail
from models.steps.cells import split
from models.steps.physics import FULL_WEIGHT_STEPS
from models.steps.rows import StepRows

LEVELS = (0.5, 0.9, 0.95, 0.99)
BANDS = 4
BAND_MIN_ROWS = 100
CELL_MIN_ROWS = 5
CALM_FRAC = 0.1
CALM_MIN_ROWS = 40


def sigma(rows: StepRows, log_residual: FloatArray, kept: BoolArray) -> float:
    """Standard deviation of log(true/predicted) of one step; arrays by row.

    The noise of steps averages out over a window (its share grows back by √steps); the law's misfit, which all windows
    of a cell have in common, does not. Nor does the drift of the batch inside a window, which is no noise of steps at
    all: the noise is taken from the windows in which the batch changed least, where their drift is known.
    """
    noise, drift, misfit = [], [], []
    for members in split(rows):
        inside = members[kept[members]]
        if inside.size >= CELL_MIN_ROWS:
            middle = float(np.median(log_residual[inside]))
            # The median took one degree of freedom of the cell.
            wider = math.sqrt(inside.size / (inside.size - 1.0))
            noise.append((log_residual[inside] - middle) * np.sqrt(rows.steps[inside]) * wider)
            drift.append(rows.drift[inside])
            misfit.append(middle)
    if not noise:
        return robust_sigma(log_residual[kept] * np.sqrt(np.minimum(rows.steps[kept], FULL_WEIGHT_STEPS)))
    calm = _calmest(np.concatenate(noise), np.concatenate(drift))
    return math.hypot(MAD_TO_SIGMA * float(np.median(np.abs(calm))), robust_sigma(np.array(misfit)))


def _calmest(noise: FloatArray, drift: FloatArray) -> FloatArray:
    """The noise of the windows of least drift; of all where too few tell theirs."""
    known = np.isfinite(drift)
    if np.count_nonzero(known) * CALM_FRAC < CALM_MIN_ROWS:
        return noise
    return noise[known & (drift <= np.quantile(drift[known], CALM_FRAC))]


def tail(rows: StepRows, log_residual: FloatArray, step_sigma: float) -> Tail:
    """Quantiles of true / predicted of one step in up to BANDS bands of the batch's size; arrays by row.

    Where rows are single steps the quantiles are those that were seen, stalls and all. Longer windows show means only:
    there the bulk is log-normal with the law's spread.
    """
    size = rows.sizes[:, 0]
    edges = _edges(size)
    band = np.searchsorted(np.array(edges), size, side="right")
    normal = [math.exp(step_sigma * NormalDist().inv_cdf(level)) for level in LEVELS]
    factors = []
    for at in range(len(edges) + 1):
        single = (band == at) & (rows.steps == 1)
        if np.count_nonzero(single) * 2 > np.count_nonzero(band == at) and np.count_nonzero(single) >= BAND_MIN_ROWS:
            seen = np.exp(np.quantile(log_residual[single], LEVELS))
            factors.append(tuple(float(value) for value in seen))
        else:
            factors.append(tuple(normal))
    return Tail(LEVELS, edges, tuple(factors))


def _edges(size: FloatArray) -> tuple[float, ...]:
    """Whole numbers that split the rows evenly into bands of BAND_MIN_ROWS at least, ascending."""
    bands = min(BANDS, size.size // BAND_MIN_ROWS)
    if bands < 2:
        return ()
    cuts = np.ceil(np.quantile(size, np.arange(1, bands) / bands))
    return tuple(sorted({float(cut) for cut in cuts if cut > size.min()}))
