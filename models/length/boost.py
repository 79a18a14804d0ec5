"""The full model: LightGBM quantiles of log tokens, level by level, sorted where they would cross."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.metrics import FloatArray

UNKNOWN = 1e6
"""Stands for NaN: above every known input, so trees send unknown values right, as the portable form does."""
LARGE_ROWS = 20_000
"""From here on trees may be larger, and one booster a level is enough."""
SMALL_LEAVES, LARGE_LEAVES = 7, 31
SMALL_BOOSTERS = 4
"""Boosters a level of a small log, of different bags: their mean depends less on which rows a bag held."""
ROUNDS = 120


@dataclass(frozen=True, slots=True)
class QuantileModel:
    """Boosters by level, lowest first; a level's quantile is the mean of its boosters, in logs."""

    levels: tuple[float, ...]
    boosters: tuple[tuple[Any, ...], ...]

    def log_quantiles(self, x: FloatArray) -> FloatArray:
        """Log tokens, ascending by level, shape (rows, levels), of inputs of shape (rows, inputs)."""
        filled = np.nan_to_num(x, nan=UNKNOWN)
        columns = [
            np.mean([booster.predict(filled, num_threads=1) for booster in of_level], axis=0)
            for of_level in self.boosters
        ]
        found: FloatArray = np.sort(np.stack(columns, axis=1), axis=1)
        return found


def fit_quantiles(x: FloatArray, log_output: FloatArray, levels: Sequence[float], *, seed: int) -> QuantileModel:
    """Boosters of `x`, shape (rows, inputs), NaN = unknown. Deterministic."""
    filled = np.nan_to_num(x, nan=UNKNOWN)
    count = SMALL_BOOSTERS if len(x) < LARGE_ROWS else 1
    found = (
        tuple(_boosted(filled, log_output, level, seed=(seed * SMALL_BOOSTERS + at) % 2**31) for at in range(count))
        for level in levels
    )
    return QuantileModel(tuple(levels), tuple(found))


def _boosted(x: FloatArray, log_output: FloatArray, level: float, *, seed: int) -> Any:  # noqa: ANN401  no types
    import lightgbm

    parameters = {
        "objective": "quantile",
        "alpha": level,
        "num_leaves": SMALL_LEAVES if len(x) < LARGE_ROWS else LARGE_LEAVES,
        "learning_rate": 0.05,
        "min_data_in_leaf": 20,
        "bagging_fraction": 0.7,
        "bagging_freq": 1,
        # One thread: on a busy machine OpenMP's spinning costs more than the fit, and sums keep their order.
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "seed": seed,
        "verbosity": -1,
    }
    return lightgbm.train(parameters, lightgbm.Dataset(x, log_output), num_boost_round=ROUNDS)
