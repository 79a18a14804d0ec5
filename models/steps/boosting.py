"""Boosted trees as portable ones, and one small tree that stands for many.

Rows have no weights: with them LightGBM estimates how many rows a leaf has and fails where the estimate is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.metrics import FloatArray
from models.portable.trees import LEAF, Trees

MOST_ROWS = 200_000
_SAME_EVERYWHERE = {
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 1,
    "use_missing": False,
    "verbosity": -1,
    "boost_from_average": False,
}


def boosted(
    x: FloatArray,
    log_ratio: FloatArray,
    *,
    trees: int,
    leaves: int,
    rate: float,
    least_rows: int,
) -> Trees:
    """Trees whose product is exp of the expected log_ratio, fitted one after the other. x: (rows, inputs)."""
    return _portable(_train(x, log_ratio, trees, leaves, rate, least_rows))


def one_tree(x: FloatArray, target: FloatArray, *, leaves: int, least_rows: int) -> Trees:
    """One tree of at most `leaves` leaves that follows `target` (logs); leaf values are exp of its means."""
    return _portable(_train(x, target, 1, leaves, 1.0, least_rows))


def _train(
    x: FloatArray,
    target: FloatArray,
    trees: int,
    leaves: int,
    rate: float,
    least_rows: int,
) -> list[Mapping[str, Any]]:
    """Structures of the fitted trees, as LightGBM dumps them."""
    import lightgbm

    stride = -(-target.size // MOST_ROWS)
    x, target = x[::stride], target[::stride]
    settings: dict[str, Any] = {
        **_SAME_EVERYWHERE,
        "objective": "regression",
        "num_leaves": max(2, leaves),
        "learning_rate": rate,
        "min_data_in_leaf": least_rows,
    }
    data = lightgbm.Dataset(np.ascontiguousarray(x), label=target, free_raw_data=True)
    booster = lightgbm.train(settings, data, num_boost_round=trees)
    return [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]]


def _portable(structures: Sequence[Mapping[str, Any]]) -> Trees:
    nodes: list[tuple[int, float, int, int, float]] = []

    def grow(node: Mapping[str, Any]) -> int:
        at = len(nodes)
        if "split_feature" not in node:
            nodes.append((LEAF, 0.0, 0, 0, float(np.exp(node["leaf_value"]))))
            return at
        # LightGBM goes left up to and with the threshold.
        split = float(np.nextafter(node["threshold"], np.inf))
        nodes.append((int(node["split_feature"]), split, 0, 0, 0.0))
        left, right = grow(node["left_child"]), grow(node["right_child"])
        nodes[at] = (int(node["split_feature"]), split, left, right, 0.0)
        return at

    roots = [grow(structure) for structure in structures]
    columns = list(zip(*nodes, strict=True)) or [()] * 5
    return Trees(tuple(roots), *columns)
