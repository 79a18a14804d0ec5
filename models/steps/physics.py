"""The physical part of a step law: what its terms are, and their coefficients by type of node.

Prefill: 1, T, T², Σ chunk·context, prompts. Decode: 1, n, t, t². The part in T or n is a line whose slope may change at
knots (padded batches, other kernels, from memory-bound to compute-bound); all slopes and coefficients are >= 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models import gpus, robust_fit
from models.metrics import BoolArray, FloatArray, IntArray
from models.portable.steps import StepLaw
from models.steps.rows import Kind, StepRows

FULL_WEIGHT_STEPS = 16.0
"""A window of more steps weighs no more than this many: beyond, the law's own misfit outweighs the noise of steps."""
KNOTS = 6
KNOT_MIN_ROWS = 20
PRIOR_ROWS = 4.0
"""What a type takes over from another one counts as much as this many of its own rows."""
LEVEL_PRIOR_ROWS = 1.0
"""A type of m rows keeps m / (m + this) of how much it is off the other type's law."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Terms of a law. `knots`: where the slope over T or n may change. `cap`: t beyond counts as this (decode)."""

    kind: Kind
    knots: tuple[float, ...]
    cap: float

    def basis(self, rows: StepRows) -> FloatArray:
        """Columns whose sum with weights >= 0 is a mean step's time, shape (rows, columns)."""
        ones = np.ones_like(rows.steps)
        ramps = self._ramps(rows)
        if self.kind == "prefill":
            return np.stack([ones, *ramps, rows.terms[:, 1], rows.terms[:, 2], rows.terms[:, 3]], axis=1)
        t = np.minimum(rows.terms[:, 1], self.cap)
        # A parabola that does not fall on [0, cap] has a slope that falls or rises along a line between two values
        # >= 0, one at each end: these two shapes with weights >= 0 are all of them.
        rising = t * t / (2.0 * self.cap)
        return np.stack([ones, *ramps, t - rising, rising], axis=1)

    def law(self, weights: FloatArray, beyond: tuple[float, float]) -> StepLaw:
        """The law with these weights of the columns, without a residual. `beyond`: as in TypeFit."""
        w = [float(weight) for weight in weights]
        slopes, rest = w[1 : 2 + len(self.knots)], w[2 + len(self.knots) :]
        changes = zip(self.knots, slopes[1:], slopes, strict=False)
        bends = tuple((at, after - before) for at, after, before in changes if after != before)
        if self.knots and beyond[1] > slopes[-1]:
            bends = (*bends, (beyond[0], beyond[1] - slopes[-1]))
        if self.kind == "prefill":
            return StepLaw((w[0], slopes[0], *rest), bends)
        at_zero, at_cap = rest
        curve = (at_cap - at_zero) / (2.0 * self.cap)
        return StepLaw((w[0], slopes[0], at_zero, curve), bends, token_cap=self.cap)

    def _ramps(self, rows: StepRows) -> list[FloatArray]:
        """Mean length of the size within each segment between knots."""
        ends = (*self.knots, np.inf)
        others = (rows.steps - 1.0) / rows.steps
        found = []
        for low, high in zip((0.0, *self.knots), ends, strict=True):
            first, last = (np.clip(rows.sizes[:, at], low, high) - low for at in (0, 1))
            found.append(others * first + (1.0 - others) * last)
        return found


@dataclass(frozen=True, slots=True)
class TypeFit:
    """Physics of one type. `rows`: places of its windows; `kept` and `residual` (log) are of those.

    `beyond`: the largest size that was seen, and the least slope from there on: that of a law without knots. The last
    segment follows the last kink of what was seen; steps that are larger still cost more all the same.
    """

    weights: FloatArray
    beyond: tuple[float, float]
    rows: IntArray
    log_factor: FloatArray
    kept: BoolArray
    residual: FloatArray
    donor: str | None


def knots_of(sizes: FloatArray, rows: int) -> tuple[float, ...]:
    """Whole numbers that split the different sizes evenly, ascending: where data can tell a change of slope."""
    distinct = np.unique(np.round(sizes))
    knots = min(KNOTS, rows // KNOT_MIN_ROWS, distinct.size - 2)
    if knots < 1:
        return ()
    inner = np.quantile(distinct, np.arange(1, knots + 1) / (knots + 1), method="nearest")
    return tuple(sorted({float(at) for at in inner.tolist() if distinct[0] < at < distinct[-1]}))


def fit_types(
    shape: Shape, rows: StepRows, type_of: IntArray, types: tuple[str, ...], *, node_effects: bool
) -> dict[str, TypeFit]:
    """Physics of every type, those with most rows first: the others lean on the nearest one that is known by then."""
    basis = shape.basis(rows)
    weight = np.minimum(rows.steps, FULL_WEIGHT_STEPS)
    count = np.bincount(type_of, minlength=len(types))
    found: dict[str, TypeFit] = {}
    for at in sorted(range(len(types)), key=lambda k: (-count[k], types[k])):
        inside = np.flatnonzero(type_of == at)
        bound: gpus.Bound = "flops" if shape.kind == "prefill" else "memory"
        donor = gpus.nearest(types[at], sorted(name for name, fit in found.items() if fit.rows.size), bound)
        if donor is None:
            prior, start = None, np.zeros(basis.shape[1])
        else:
            lent = found[donor]
            start = lent.weights * (gpus.slower(types[at], donor, bound) or 1.0)
            if inside.size:
                log_ratio = np.log(rows.seconds[inside] / robust_fit.evaluate(basis[inside], start))
                level = float(np.median(log_ratio)) * inside.size / (inside.size + LEVEL_PRIOR_ROWS)
                start = start * np.exp(level)
            source = basis[lent.rows[lent.kept]]
            total = PRIOR_ROWS * (float(np.mean(weight[inside])) if inside.size else 1.0)
            prior = robust_fit.prior_of(
                source, robust_fit.evaluate(source, start), weight[lent.rows[lent.kept]], total=total
            )
        if not inside.size:
            none = np.zeros(0)
            edge = found[donor].beyond if donor is not None else (0.0, 0.0)
            beyond = (edge[0], edge[1] * (gpus.slower(types[at], donor, bound) or 1.0) if donor is not None else 0.0)
            found[types[at]] = TypeFit(
                start, beyond, inside, np.zeros(len(rows.nodes)), none.astype(np.bool_), none, donor
            )
            continue
        fit = robust_fit.fit(
            basis[inside],
            rows.seconds[inside],
            rows.node[inside],
            len(rows.nodes),
            weight[inside],
            factors=node_effects,
            prior=prior,
        )
        beyond = _beyond(shape, rows.take(inside[fit.kept]), weight[inside[fit.kept]], fit.log_factor)
        found[types[at]] = TypeFit(fit.coef, beyond, inside, fit.log_factor, fit.kept, fit.log_residual, donor)
    return found


def _beyond(shape: Shape, rows: StepRows, weight: FloatArray, log_factor: FloatArray) -> tuple[float, float]:
    seconds = rows.seconds / np.exp(log_factor)[rows.node]
    x = Shape(shape.kind, (), shape.cap).basis(rows)
    line = robust_fit.nnls(x / seconds[:, None], np.ones_like(seconds), weight)
    return float(rows.inputs[:, 0].max()), float(line[1])
