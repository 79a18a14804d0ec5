"""What step laws are compared with: an affine fit, plain LightGBM, a random forest. All fit relative errors or logs."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.metrics import FloatArray
from models.robust_fit import evaluate, nnls

FOREST_ROWS = 6000
"""A forest is grown on this many rows at most; more change its errors little and its time much."""


def affine(
    terms: FloatArray, seconds: FloatArray, at: FloatArray, group: FloatArray, group_at: FloatArray
) -> FloatArray:
    """1 and the terms, coefficients >= 0, by group (all rows for a group without any). terms: (rows, k)."""

    def basis(x: FloatArray) -> FloatArray:
        return np.concatenate([np.ones((x.shape[0], 1)), x], axis=1)

    found = np.zeros(at.shape[0])
    for name in np.unique(group_at):
        inside = group == name
        rows = inside if inside.any() else np.ones(group.size, dtype=np.bool_)
        ones = np.ones(int(rows.sum()))
        coef = nnls(basis(terms[rows]) / seconds[rows][:, None], ones, ones)
        found[group_at == name] = evaluate(basis(at[group_at == name]), coef)
    return found


def plain_lightgbm(x: FloatArray, seconds: FloatArray, at: FloatArray) -> FloatArray:
    """100 trees of 31 leaves on log seconds."""
    import lightgbm

    settings: dict[str, Any] = {
        "objective": "regression", "num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 5, "verbosity": -1,
        "num_threads": 1, "deterministic": True, "force_row_wise": True, "seed": 1,
    }  # fmt: skip
    booster = lightgbm.train(settings, lightgbm.Dataset(x, label=np.log(seconds)), num_boost_round=100)
    return np.exp(np.asarray(booster.predict(at), dtype=np.float64))


def forest(x: FloatArray, seconds: FloatArray, at: FloatArray) -> FloatArray:
    """30 full trees on log seconds."""
    from sklearn.ensemble import RandomForestRegressor

    stride = -(-seconds.size // FOREST_ROWS)
    model = RandomForestRegressor(n_estimators=30, random_state=1, n_jobs=1)
    model.fit(x[::stride], np.log(seconds[::stride]))
    return np.exp(np.asarray(model.predict(at), dtype=np.float64))
