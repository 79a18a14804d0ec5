"""One tree says what the model says."""

from __future__ import annotations

import numpy as np
import pytest

from models.length.boost import fit_quantiles
from models.length.distil import LEAVES, distil
from models.portable.arrays import leaves
from models.portable.length import INPUTS

LEVELS = (0.5, 0.9)


@pytest.fixture(scope="module")
def sample() -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(1)
    x = np.full((3000, len(INPUTS)), np.nan)
    x[:, 0] = rng.choice([3.0, 5.0], 3000)
    x[:, 1] = rng.uniform(3, 10, 3000)
    x[:, 4] = np.where(rng.random(3000) < 0.5, np.nan, rng.integers(0, 5, 3000))
    y = x[:, 0] + 0.3 * x[:, 1] + np.where(np.isnan(x[:, 4]), 1.0, 0.0) + rng.normal(0, 0.3, 3000)
    return x, y


def test_the_tree_is_close_to_the_model(sample: tuple[np.ndarray, np.ndarray]) -> None:  # type: ignore[type-arg]
    x, y = sample
    model = fit_quantiles(x, y, LEVELS, seed=1)
    table, rows = distil(model, x, seed=1)
    assert len(rows) <= LEAVES
    assert all(list(row) == sorted(row) and row[0] > 0 for row in rows)
    found = np.log(np.array(rows)[leaves(table, 0, x).astype(int)])
    assert np.abs(found - model.log_quantiles(x)).mean() < 0.06
    unknown = np.isnan(x[:, 4])
    assert found[unknown, 0].mean() - found[~unknown, 0].mean() == pytest.approx(1.0, abs=0.15)


def test_vectors_reach_the_leaves_of_the_plain_form(sample: tuple[np.ndarray, np.ndarray]) -> None:  # type: ignore[type-arg]
    x, y = sample
    table, _ = distil(fit_quantiles(x, y, LEVELS, seed=1), x, seed=1)
    assert leaves(table, 0, x[:500]).tolist() == [int(table.leaf(0, row)) for row in x[:500].tolist()]


def test_equal_seeds_give_equal_tables(sample: tuple[np.ndarray, np.ndarray]) -> None:  # type: ignore[type-arg]
    x, y = sample
    model = fit_quantiles(x, y, LEVELS, seed=1)
    assert distil(model, x, seed=1) == distil(model, x, seed=1)
    assert distil(model, x, seed=2) != distil(model, x, seed=1)


def test_one_observed_input_gives_one_row() -> None:
    x = np.tile([1.0] * len(INPUTS), (300, 1))
    _, rows = distil(fit_quantiles(x, np.full(300, 2.0), LEVELS, seed=1), x, seed=1)
    assert rows == (pytest.approx((np.exp(2.0), np.exp(2.0)), rel=1e-3),)
