"""The full model as one tree whose leaves are rows of quantiles.

The tree learns the model's predictions, not the answers, on made-up requests beside the observed ones: rows whose
inputs are now and then those of another row, so that it sees the model between the observations too (Breiman & Shang
1996, "Born again trees").
"""

from __future__ import annotations

import numpy as np

from models.length.boost import UNKNOWN, QuantileModel
from models.length.inputs import rounded
from models.metrics import FloatArray
from models.portable.arrays import leaves
from models.portable.trees import LEAF, Trees

LEAVES = 400
LEAF_ROWS = 5
MADE_UP_ROWS = 30_000
MOST_OBSERVED = 30_000
SWAP_FRAC = 0.1
"""How often an input of a made-up row is that of another row."""
TOKEN_DIGITS = 4


def distil(model: QuantileModel, x: FloatArray, *, seed: int) -> tuple[Trees, tuple[tuple[float, ...], ...]]:
    """A tree over the inputs and its rows of quantiles in tokens. `x`: observed inputs, shape (rows, inputs)."""
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(seed)
    observed = x if len(x) <= MOST_OBSERVED else x[np.sort(rng.choice(len(x), MOST_OBSERVED, replace=False))]
    asked = np.concatenate([_made_up(observed, rng), observed])
    weight = np.ones(len(asked))
    weight[MADE_UP_ROWS:] = MADE_UP_ROWS / len(observed)
    taught = model.log_quantiles(asked)
    grown = DecisionTreeRegressor(max_leaf_nodes=LEAVES, min_samples_leaf=LEAF_ROWS, random_state=0)
    grown.fit(np.nan_to_num(asked, nan=UNKNOWN), taught, sample_weight=weight)
    table = _portable(grown.tree_)
    place = leaves(table, table.roots[0], asked).astype(np.int64)
    # Rounding a split may leave a leaf without rows; nothing then reaches it but what lies between two neighbours.
    total = np.bincount(place, weights=weight, minlength=grown.get_n_leaves())
    sums = np.stack([np.bincount(place, weights=weight * column, minlength=total.size) for column in taught.T], axis=1)
    own = grown.tree_.value[grown.tree_.children_left < 0, :, 0]
    tokens = np.exp(np.where(total[:, None] > 0.0, sums / np.maximum(total, 1e-300)[:, None], np.sort(own, axis=1)))
    return table, tuple(tuple(rounded(value, TOKEN_DIGITS) for value in row) for row in tokens.tolist())


def _made_up(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    made = x[rng.integers(0, len(x), MADE_UP_ROWS)]
    for column in range(x.shape[1]):
        swapped = np.flatnonzero(rng.random(MADE_UP_ROWS) < SWAP_FRAC)
        made[swapped, column] = x[rng.integers(0, len(x), swapped.size), column]
    return made


def _portable(tree: object) -> Trees:
    """sklearn's tree: `x <= threshold` goes left there, `x < split` here; leaves are numbered in order."""
    left = np.asarray(tree.children_left)  # type: ignore[attr-defined]
    right = np.asarray(tree.children_right)  # type: ignore[attr-defined]
    feature = np.asarray(tree.feature)  # type: ignore[attr-defined]
    threshold = np.asarray(tree.threshold)  # type: ignore[attr-defined]
    leaf = left < 0
    number = np.cumsum(leaf) - 1
    return Trees(
        roots=(0,),
        feature=tuple(np.where(leaf, LEAF, feature).tolist()),
        split=tuple(0.0 if at else rounded(value) for at, value in zip(leaf.tolist(), threshold.tolist(), strict=True)),
        left=tuple(np.where(leaf, 0, left).tolist()),
        right=tuple(np.where(leaf, 0, right).tolist()),
        value=tuple(np.where(leaf, number, 0).astype(float).tolist()),
    )
