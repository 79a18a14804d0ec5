"""Bounded least squares with penalties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.transfer.solve import bounded, normal_equations


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.0, 3.0), st.floats(0.0, 3.0))
def test_no_small_step_is_better(seed: int, below: float, above: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, 4))
    gram, right = x.T @ x, x.T @ rng.normal(size=30) * 3
    low, high = np.full(4, -0.5), np.full(4, 0.7)
    penalty = np.stack([np.full(4, below), np.full(4, above)])

    def cost(c: np.ndarray) -> float:
        paid = penalty[0] * np.maximum(-c, 0.0) + penalty[1] * np.maximum(c, 0.0)
        return float(0.5 * c @ gram @ c - c @ right + paid.sum())

    found = bounded(gram, right, np.zeros(4), low, high, penalty)
    assert (found >= low - 1e-12).all()
    assert (found <= high + 1e-12).all()
    for _ in range(30):
        near = np.clip(found + rng.normal(scale=1e-3, size=4), low, high)
        assert cost(near) >= cost(found) - 1e-9


def test_normal_equations_equal_the_dense_ones() -> None:
    rng = np.random.default_rng(1)
    column, value = rng.integers(0, 5, (40, 3)), rng.normal(size=(40, 3))
    target, weight = rng.normal(size=40), rng.uniform(size=40)
    dense = np.zeros((40, 5))
    for k in range(3):
        np.add.at(dense, (np.arange(40), column[:, k]), value[:, k])
    gram, right = normal_equations(column, value, target, weight, 5)
    assert gram == pytest.approx(dense.T @ (weight[:, None] * dense))
    assert right == pytest.approx(dense.T @ (weight * target))


def test_a_column_that_nothing_tells_of_stays() -> None:
    gram = np.diag([2.0, 0.0])
    found = bounded(gram, np.array([4.0, 0.0]), np.array([0.0, 0.3]), np.zeros(2), np.full(2, 9.0), np.zeros((2, 2)))
    assert found.tolist() == [2.0, 0.3]
