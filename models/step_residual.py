"""Physics × node factors × a residual by batch size: one fit of all three.

Engines pad batches, pick kernels by size and so on: real times have kinks that no polynomial has. The residual, one
factor a bucket of the law's size (T or n), takes up what all nodes have in common. Its edges are quantiles of the
observed sizes, since nobody knows where an engine's kinks are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models import robust_fit
from models.metrics import BoolArray, FloatArray
from models.step_rows import StepRows

BUCKETS = 8
BUCKET_MIN_ROWS = 40
BUCKET_PRIOR_ROWS = 20.0
"""A bucket of m rows keeps m / (m + this) of its log factor."""

ROUNDS = 4
FULL_WEIGHT_STEPS = 16.0
"""A window of more steps weighs no more than this many: beyond, the law's own misfit outweighs the noise of steps."""


@dataclass(frozen=True, slots=True)
class ResidualFit:
    """`coef` of the basis, `log_factor` a node, `log_bucket` a bucket, `kept` and `log_residual` a row."""

    coef: FloatArray
    log_factor: FloatArray
    edges: tuple[int, ...]
    log_bucket: FloatArray
    kept: BoolArray
    log_residual: FloatArray


def fit(read: StepRows, basis: FloatArray, *, node_effects: bool, residual: bool) -> ResidualFit:
    """Physics × nodes first, then the residual of that by bucket, then physics × nodes of the rest, and so on."""
    weight = np.minimum(read.steps, FULL_WEIGHT_STEPS)
    edges = bucket_edges(read.x[:, 1]) if residual else ()
    bucket = np.searchsorted(np.array(edges, dtype=np.float64), read.x[:, 1], side="right")
    log_bucket = np.zeros(len(edges) + 1)
    nodes = len(read.nodes)
    found = robust_fit.fit(basis, read.seconds, read.node, nodes, weight, factors=node_effects)
    for _ in range(ROUNDS if edges else 0):
        kept = found.kept
        rows = np.bincount(bucket[kept], minlength=log_bucket.size)
        total = np.bincount(bucket[kept], weights=weight[kept], minlength=log_bucket.size)
        left = np.bincount(bucket[kept], weights=(weight * found.log_residual)[kept], minlength=log_bucket.size)
        raw = log_bucket + left / np.maximum(total, 1e-9)
        middle = float(np.sum(raw * total) / np.sum(total))
        log_bucket = (raw - middle) * rows / (rows + BUCKET_PRIOR_ROWS)
        seconds = read.seconds / np.exp(log_bucket)[bucket]
        found = robust_fit.fit(basis, seconds, read.node, nodes, weight, factors=node_effects)
    return ResidualFit(found.coef, found.log_factor, edges, log_bucket, found.kept, found.log_residual)


def bucket_edges(size: FloatArray) -> tuple[int, ...]:
    """Up to BUCKETS - 1 whole numbers that split the rows evenly, ascending; none for few rows. size: shape (rows,)."""
    buckets = min(BUCKETS, size.size // BUCKET_MIN_ROWS)
    if buckets < 2:
        return ()
    split = np.ceil(np.quantile(size, np.arange(1, buckets) / buckets))
    return tuple(sorted({int(edge) for edge in split if edge > size.min()}))
