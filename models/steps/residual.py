"""What physics leaves open: boosted trees over all types together, distilled into one small tree a type.

Real steps have kinks and steps that no polynomial has, and nodes of all types have most of them in common. The tree's
splits are therefore those of all types; a leaf's factor is the common one, moved towards the type's own as far as its
rows carry that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from models.metrics import BoolArray, FloatArray, IntArray
from models.portable import arrays
from models.portable.trees import NO_TREES, Trees
from models.steps import boosting

LEAVES = 32
TREES = 100
RATE = 0.1
BOOSTED_LEAVES = 15
MIN_ROWS = 80
"""Fewer rows than this say nothing about a residual."""
LEAF_MIN_ROWS = 5


@dataclass(frozen=True, slots=True)
class Residual:
    """`trees`: type -> its one tree. `boosted`: what the whole boosted model says of each row, a factor."""

    trees: Mapping[str, Trees]
    boosted: FloatArray


def fit(
    inputs: FloatArray,
    log_residual: FloatArray,
    kept: BoolArray,
    type_of: IntArray,
    types: tuple[str, ...],
) -> Residual:
    """Trees of all types from the rows that are kept; no trees with fewer than MIN_ROWS of them."""
    if np.count_nonzero(kept) < MIN_ROWS:
        return Residual(dict.fromkeys(types, NO_TREES), np.ones(log_residual.size))
    x, target, of = inputs[kept], log_residual[kept], type_of[kept]
    many = boosting.boosted(x, target, trees=TREES, leaves=BOOSTED_LEAVES, rate=RATE, least_rows=LEAF_MIN_ROWS)
    smooth = np.log(arrays.product(many, x))
    tree = boosting.one_tree(x, smooth, leaves=LEAVES, least_rows=LEAF_MIN_ROWS)
    leaf = arrays.leaf_nodes(tree, tree.roots[0], x)
    nodes = len(tree.value)
    common = shrunk_means(target, leaf, nodes)
    trees = {}
    own = shrunk_means(target - common[leaf], leaf + nodes * of, nodes * len(types)) if len(types) > 1 else None
    for at, name in enumerate(types):
        log_value = common if own is None else common + own[nodes * at : nodes * (at + 1)]
        trees[name] = replace(tree, value=tuple(float(v) for v in np.exp(log_value)))
    return Residual(trees, arrays.product(many, inputs))


def shrunk_means(values: FloatArray, group: IntArray, groups: int) -> FloatArray:
    """Mean of each group, drawn to 0 as far as the noise inside groups explains that the means differ, (groups,).

    Groups of one variance around means that are spread around 0: the estimate of least expected error.
    """
    rows = np.bincount(group, minlength=groups).astype(np.float64)
    mean = np.bincount(group, weights=values, minlength=groups) / np.maximum(rows, 1.0)
    seen = int(np.count_nonzero(rows))
    inside = float(np.sum((values - mean[group]) ** 2)) / max(values.size - seen, 1)
    between = max(0.0, (float(np.sum(rows * mean * mean)) - seen * inside) / values.size)
    scale = rows * between + inside
    shrunk: FloatArray = np.divide(mean * rows * between, scale, out=np.zeros(groups), where=scale > 0)
    return shrunk
