"""Portable trees say what LightGBM says, and shrinkage follows the noise."""

from __future__ import annotations

import numpy as np
import pytest

from models.portable import arrays
from models.steps import boosting, residual


def data(seed: int, rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.stack([rng.integers(1, 50, rows), np.exp(rng.uniform(0, 10, rows))], axis=1).astype(np.float64)
    return x, 0.1 * np.sin(x[:, 0]) + 0.02 * np.log(x[:, 1]) + rng.normal(0, 0.02, rows)


def test_portable_trees_equal_lightgbm() -> None:
    import lightgbm

    x, y = data(1)
    trees = boosting.boosted(x, y, trees=20, leaves=8, rate=0.2, least_rows=5)
    settings = {"num_leaves": 8, "learning_rate": 0.2, "min_data_in_leaf": 5,
                "boost_from_average": False, "use_missing": False, "num_threads": 1, "deterministic": True,
                "force_row_wise": True, "seed": 1, "verbosity": -1}  # fmt: skip
    booster = lightgbm.train(settings, lightgbm.Dataset(x, label=y), num_boost_round=20)
    assert len(trees.roots) == 20
    np.testing.assert_allclose(arrays.product(trees, x), np.exp(booster.predict(x)), rtol=1e-9)
    at = x[17].tolist()
    assert trees.product(at) == pytest.approx(float(np.exp(booster.predict(x[17:18])[0])), rel=1e-9)


def test_many_rows_and_one_at_a_time_agree() -> None:
    x, y = data(2)
    trees = boosting.one_tree(x, y, leaves=16, least_rows=5)
    assert trees.feature.count(-1) <= 16
    assert arrays.product(trees, x).tolist() == [trees.product(row) for row in x.tolist()]


def test_noise_alone_leaves_no_residual() -> None:
    rng = np.random.default_rng(3)
    group = rng.integers(0, 30, 3000)
    shrunk = residual.shrunk_means(rng.normal(0.0, 0.1, 3000), group, 30)
    assert np.abs(shrunk).max() < 0.01


def test_means_without_noise_are_kept() -> None:
    group = np.repeat(np.arange(5), 40)
    values = np.linspace(-0.2, 0.2, 5)[group]
    np.testing.assert_allclose(residual.shrunk_means(values, group, 6)[:5], np.linspace(-0.2, 0.2, 5), atol=1e-12)
    assert residual.shrunk_means(values, group, 6)[5] == 0.0


def test_a_target_without_any_signal_makes_trees_of_leaves() -> None:
    rng = np.random.default_rng(4)
    x = np.stack([rng.integers(1, 200, 20_000), rng.integers(1, 9, 20_000)], axis=1).astype(np.float64)
    many = boosting.boosted(x, rng.normal(0.0, 1e-6, 20_000), trees=20, leaves=15, rate=0.1, least_rows=5)
    one = boosting.one_tree(x, np.log(arrays.product(many, x)), leaves=32, least_rows=5)
    assert np.abs(arrays.product(one, x) - 1.0).max() < 1e-5
    assert boosting.one_tree(x, np.zeros(20_000), leaves=32, least_rows=5).feature == (-1,)
