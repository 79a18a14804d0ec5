"""Trimmed least squares of relative errors with coefficients >= 0 and one factor a group.

y = factor[group] · (x · coef) · noise. Coefficients and factors are fitted in turn until both stand still; then rows
whose log residual is out of line are set aside, and again. Sums run in a fixed order, so equal input gives equal bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.metrics import BoolArray, FloatArray, IntArray, robust_sigma

GROUP_PRIOR_ROWS = 4.0
"""A group of m rows keeps m / (m + this) of its log factor: few rows do not make a node slow."""

TRIM_SIGMAS = 3.0
TRIM_ROUNDS = 8
TRIM_FLOOR = 0.002
"""Rows within ± this (log) times TRIM_SIGMAS are never set aside: without noise the spread would be zero."""

MIDDLE_MIN_ROWS = 20
"""A group of this many rows is trimmed around its own middle: shrinking its factor puts no row out of line."""

TURNS = 200
STANDSTILL = 1e-10


@dataclass(frozen=True, slots=True)
class RobustFit:
    """`coef` >= 0, shape (columns,); `log_factor`, shape (groups,); `kept` and `log_residual`, shape (rows,)."""

    coef: FloatArray
    log_factor: FloatArray
    kept: BoolArray
    log_residual: FloatArray


@dataclass(frozen=True, slots=True)
class Prior:
    """Rows that are believed before any is seen, as normal equations: `gram` (columns, columns), `right` (columns,)."""

    gram: FloatArray
    right: FloatArray


def prior_of(x: FloatArray, y: FloatArray, weight: FloatArray, *, total: float) -> Prior:
    """The rows x, y with their weights brought to the sum `total`; errors are relative to y."""
    relative = x / y[:, None]
    share = weight * (total / float(np.sum(weight)))
    columns = range(x.shape[1])
    gram = np.array([[np.sum(relative[:, i] * relative[:, j] * share) for j in columns] for i in columns])
    return Prior(gram, np.array([np.sum(relative[:, i] * share) for i in columns]))


def nnls(x: FloatArray, y: FloatArray, weight: FloatArray, prior: Prior | None = None) -> FloatArray:
    """Minimises sum of weight · (y - x·c)² over c >= 0. x: (rows, columns), y and weight: (rows,); gives (columns,).

    Works on the normal equations with columns scaled to one size, so that rows can be many.
    """
    from scipy import optimize

    columns = range(x.shape[1])
    root = np.sqrt(weight)
    rows = [x[:, j] * root for j in columns]
    gram = np.array([[np.sum(rows[i] * rows[j]) for j in columns] for i in columns])
    right = np.array([np.sum(rows[i] * y * root) for i in columns])
    if prior is not None:
        gram, right = gram + prior.gram, right + prior.right
    size = np.sqrt(np.diagonal(gram))
    size = np.where(size > 0, size, 1.0)
    gram = gram / size[:, None] / size[None, :]
    gram[np.diag_indices_from(gram)] += 1e-12  # a column that is zero or a copy of another one stays solvable
    upper = np.linalg.cholesky(gram).T
    found, _ = optimize.nnls(upper, np.linalg.solve(upper.T, right / size))
    result: FloatArray = found / size
    return result


def evaluate(x: FloatArray, coef: FloatArray) -> FloatArray:
    """x · coef, shape (rows,), column by column (a BLAS product may sum in another order on another thread count)."""
    total = np.zeros(x.shape[0])
    for j in range(x.shape[1]):
        total += x[:, j] * coef[j]
    return np.maximum(total, 1e-300)


def fit(
    x: FloatArray,
    y: FloatArray,
    group: IntArray,
    groups: int,
    weight: FloatArray,
    *,
    factors: bool,
    prior: Prior | None = None,
) -> RobustFit:
    """Fits coefficients and group factors (all 1 if not `factors`); the median of the log factors is 0.

    x: (rows, columns) >= 0, y: (rows,) > 0, group: (rows,) in 0..groups-1, weight: (rows,) > 0, the number of
    steps behind a row: it weighs the squares and narrows the trimming band. `prior`: rows of a group of factor 1.
    """
    kept = np.ones(y.size, dtype=np.bool_)
    log_factor = np.zeros(groups)
    coef = np.zeros(x.shape[1])
    residual = np.zeros(y.size)
    # At first errors are taken relative to the observed value, where a row that took far too long weighs least;
    # then relative to the prediction, which has no bias towards low values.
    scale = y
    for turn in range(TRIM_ROUNDS):
        coef, log_factor = _alternate(x, y, group, weight, scale, kept, log_factor, factors=factors, prior=prior)
        scale = evaluate(x, coef) * np.exp(log_factor)[group]
        residual = np.log(y / scale)
        spread = residual * np.sqrt(weight)
        around = _middles(residual, group, groups, kept, apart=factors)[group]
        band = TRIM_SIGMAS * np.maximum(robust_sigma(spread[kept]) / np.sqrt(weight), TRIM_FLOOR)
        now = np.abs(residual - around) <= band
        if turn > 0 and bool(np.array_equal(now, kept)):
            break
        kept = now
    # Shrinking may have moved the middle of an even number of groups; the predictions stay the same.
    seen = np.bincount(group, minlength=groups) > 0
    middle = float(np.median(log_factor[seen]))
    return RobustFit(coef * np.exp(middle), np.where(seen, log_factor - middle, 0.0), kept, residual)


def _middles(residual: FloatArray, group: IntArray, groups: int, kept: BoolArray, *, apart: bool) -> FloatArray:
    """The median of each group's kept residuals, that of all where it has few or groups are not `apart`, (groups,)."""
    found = np.full(groups, float(np.median(residual[kept])))
    rows = np.bincount(group[kept], minlength=groups) * apart
    for at in np.flatnonzero(rows >= MIDDLE_MIN_ROWS).tolist():
        found[at] = np.median(residual[kept & (group == at)])
    return found


def _alternate(
    x: FloatArray,
    y: FloatArray,
    group: IntArray,
    weight: FloatArray,
    scale: FloatArray,
    kept: BoolArray,
    log_factor: FloatArray,
    *,
    factors: bool,
    prior: Prior | None,
) -> tuple[FloatArray, FloatArray]:
    """Coefficients for given factors, factors for given coefficients, until neither moves."""
    x, y, group, weight, scale = x[kept], y[kept], group[kept], weight[kept], scale[kept]
    coef = nnls(x * (np.exp(log_factor)[group] / scale)[:, None], y / scale, weight, prior)
    if not factors:
        return coef, log_factor
    rows = np.bincount(group, minlength=log_factor.size).astype(np.float64)
    total = np.bincount(group, weights=weight, minlength=log_factor.size)
    seen = rows > 0
    for _ in range(TURNS):
        ratio = np.log(y / evaluate(x, coef))
        mean = np.zeros(log_factor.size)
        np.divide(np.bincount(group, weights=weight * ratio, minlength=log_factor.size), total, out=mean, where=seen)
        middle = float(np.median(mean[seen]))
        updated = np.where(seen, (mean - middle) * rows / (rows + GROUP_PRIOR_ROWS), 0.0)
        moved = float(np.max(np.abs(updated - log_factor)))
        log_factor = updated
        coef = nnls(x * (np.exp(log_factor)[group] / scale)[:, None], y / scale, weight, prior)
        if moved < STANDSTILL:
            break
    return coef, log_factor
