"""Laws of mixed steps from single steps of one type of node."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from features.errors import ModelError
from models import gpus, robust_fit
from models.metrics import FloatArray, robust_sigma
from models.portable import arrays
from models.portable.mixed import MixedLaw
from models.steps import boosting

KNOTS = 8
TREES, LEAVES, RATE, LEAF_MIN_ROWS = 40, 15, 0.25, 20
"""Not evaluated in a hot loop: a law may have as many trees as this, some fifty kilobytes of JSON."""
MIN_ROWS = 100


@dataclass(frozen=True, slots=True)
class MixedSteps:
    """Single steps: arrays of shape (rows,). `kv_decode`: tokens of all decoding sequences together."""

    chunk: FloatArray
    kv_prefill: FloatArray
    sequences: FloatArray
    kv_decode: FloatArray
    seconds: FloatArray

    def inputs(self) -> FloatArray:
        """MIXED_INPUTS, shape (rows, inputs)."""
        each = np.divide(self.kv_decode, self.sequences, out=np.zeros_like(self.chunk), where=self.sequences > 0)
        size = self.chunk + self.sequences
        return np.stack([self.chunk, self.kv_prefill, self.sequences, self.kv_decode, size, each], axis=1)

    def take(self, rows: np.typing.NDArray[np.bool_]) -> MixedSteps:
        """Some of the rows."""
        return MixedSteps(
            self.chunk[rows], self.kv_prefill[rows], self.sequences[rows], self.kv_decode[rows], self.seconds[rows]
        )


def fit_mixed(steps: MixedSteps, *, trees: bool = True) -> MixedLaw:
    """Non-negative terms with bends over T, then boosted trees on the log of what is left. ModelError: too few rows."""
    rows = int(steps.seconds.size)
    if rows < MIN_ROWS:
        raise ModelError(f"mixed steps must be at least {MIN_ROWS}", value=rows)
    size = steps.chunk + steps.sequences
    knots = _knots(size)
    basis = _basis(steps, knots)
    ones = np.ones(rows)
    weights = robust_fit.nnls(basis / steps.seconds[:, None], ones, ones)
    law = _law(weights, knots)
    left = np.log(steps.seconds / robust_fit.evaluate(basis, weights))
    if trees:
        many = boosting.boosted(steps.inputs(), left, trees=TREES, leaves=LEAVES, rate=RATE, least_rows=LEAF_MIN_ROWS)
        left = left - np.log(arrays.product(many, steps.inputs()))
        law = replace(law, trees=many)
    columns = steps.inputs().T[:4]
    return replace(
        law, sigma=robust_sigma(left), measured=tuple((float(column.min()), float(column.max())) for column in columns)
    )


def predict_mixed(law: MixedLaw, steps: MixedSteps) -> FloatArray:
    """Seconds of each step, shape (rows,)."""
    knots = tuple(at for at, _ in law.bends)
    slopes = [law.coef[1], *(law.coef[1] + np.cumsum([slope for _, slope in law.bends])).tolist()]
    weights = np.array([law.coef[0], *slopes, *law.coef[2:]])
    seconds: FloatArray = robust_fit.evaluate(_basis(steps, knots), weights)
    return seconds * arrays.product(law.trees, steps.inputs())


def scaled(law: MixedLaw, of: str, than: str) -> MixedLaw:
    """The law of type `than` as the first guess for type `of`: what goes with T is arithmetic, all else is memory.

    ModelError if the data sheet of one is not known.
    """
    by_flops, by_memory = gpus.slower(of, than, "flops"), gpus.slower(of, than, "memory")
    if by_flops is None or by_memory is None:
        raise ModelError("a type must be one whose GPU is in the table", value=(of, than))
    coef = tuple(c * (by_flops if at == 1 else by_memory) for at, c in enumerate(law.coef))
    return replace(law, coef=coef, bends=tuple((at, slope * by_flops) for at, slope in law.bends), measured=())


def _knots(size: FloatArray) -> tuple[float, ...]:
    """Whole numbers, evenly spread over the logarithm: kernels change at sizes that double."""
    low, high = np.log2(size.min()), np.log2(size.max())
    inner = np.round(2.0 ** np.linspace(low, high, KNOTS + 2)[1:-1])
    return tuple(float(at) for at in np.unique(inner) if size.min() < at < size.max())


def _basis(steps: MixedSteps, knots: tuple[float, ...]) -> FloatArray:
    c, k, n, t = steps.chunk, steps.kv_prefill, steps.sequences, steps.kv_decode
    both = ((c > 0) & (n > 0)).astype(np.float64)
    ends = (*knots, np.inf)
    ramps = [np.clip(c + n, low, high) - low for low, high in zip((0.0, *knots), ends, strict=True)]
    return np.stack([np.ones_like(c), *ramps, c * c, c * k, k, n, t, n * t, both * n, both * t], axis=1)


def _law(weights: FloatArray, knots: tuple[float, ...]) -> MixedLaw:
    w = [float(weight) for weight in weights]
    slopes = w[1 : 2 + len(knots)]
    bends = tuple((at, after - before) for at, after, before in zip(knots, slopes[1:], slopes, strict=False))
    return MixedLaw((w[0], slopes[0], *w[2 + len(knots) :]), bends)
