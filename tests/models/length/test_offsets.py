"""One-sided conformal offsets against another implementation, and how small groups lean on their parents."""

from __future__ import annotations

import math

import numpy as np
import pytest
from crepes import ConformalPredictiveSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from models.length.offsets import LEAST_PACE, MOST_PACE, PRIOR_ROWS, conformal_offsets, paces, upper_quantiles

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
PARENT = {"*": "*", "chat": "*", "chat/a": "chat", "chat/a|0": "chat/a"}
GROUPS = tuple(PARENT)


@given(st.integers(101, 400), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_the_offset_is_the_oracle_s_upper_percentile(count: int, seed: int) -> None:
    ratios = np.random.default_rng(seed).normal(0.0, 0.5, count)
    oracle = ConformalPredictiveSystem().fit(residuals=ratios)
    expected = oracle.predict(y_hat=np.zeros(1), higher_percentiles=[100 * level for level in LEVELS])
    repeated = np.repeat(ratios[:, None], len(LEVELS), axis=1)
    found = conformal_offsets(repeated, np.zeros(count, np.int64), ("*",), {"*": "*"}, LEVELS)["*"]
    # The oracle has no bound above the largest residual; there this takes the largest.
    known = [k for k, level in enumerate(LEVELS) if math.ceil((count + 1) * level) <= count]
    assert np.log(found)[known] == pytest.approx(np.ravel(expected)[known], abs=1e-12)


def test_groups_are_the_oracle_s_mondrian_categories() -> None:
    rng = np.random.default_rng(3)
    place = rng.integers(0, 3, 900)
    ratios = rng.normal(place * 0.3, 0.5)
    oracle = ConformalPredictiveSystem().fit(residuals=ratios, bins=place)
    expected = oracle.predict(y_hat=np.zeros(3), bins=np.arange(3), higher_percentiles=[90.0])
    own = [upper_quantiles(ratios[place == at][:, None], [0.9])[0] for at in range(3)]
    assert own == pytest.approx(np.ravel(expected), abs=1e-12)


def test_a_small_group_leans_on_its_parent() -> None:
    ratios = np.concatenate([np.zeros(1000), np.full(20, 1.0), np.full(30, 2.0), np.full(50, 3.0)])
    place = np.repeat(np.arange(4), [1000, 20, 30, 50])
    found = conformal_offsets(ratios[:, None], place, GROUPS, PARENT, (0.5,))
    in_logs = {name: math.log(values[0]) for name, values in found.items()}
    assert in_logs["*"] == 0.0
    chat = 100 / (100 + PRIOR_ROWS) * 3.0  # the middle of 20 ones, 30 twos and 50 threes, as ceil(101 / 2)
    assert in_logs["chat"] == pytest.approx(chat)
    app = 80 / (80 + PRIOR_ROWS)
    assert in_logs["chat/a"] == pytest.approx(app * 3.0 + (1 - app) * chat)
    part = 50 / (50 + PRIOR_ROWS)
    assert in_logs["chat/a|0"] == pytest.approx(part * 3.0 + (1 - part) * in_logs["chat/a"])


def test_a_group_without_rows_takes_its_parent_s_offset() -> None:
    found = conformal_offsets(np.full((100, 1), 0.7), np.zeros(100, np.int64), GROUPS, PARENT, (0.9,))
    assert {values[0] for values in found.values()} == {math.exp(0.7)}


def test_paces_grow_with_the_spread_and_the_level() -> None:
    rng = np.random.default_rng(5)
    narrow, wide = (paces(rng.normal(0, sigma, (5000, 5)), LEVELS) for sigma in (0.2, 0.8))
    assert all(a < b for a, b in zip(narrow, wide, strict=True))
    assert list(wide) == sorted(wide)
    assert paces(np.zeros((50, 5)), LEVELS) == (LEAST_PACE,) * 5
    assert max(paces(rng.normal(0, 50.0, (5000, 5)), LEVELS)) == MOST_PACE
