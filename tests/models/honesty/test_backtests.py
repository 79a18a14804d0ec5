"""Tests of a series of misses: quiet at the level, loud off it or where misses come in runs."""

from __future__ import annotations

import numpy as np

from models.honesty.backtests import christoffersen, kupiec


def test_kupiec_is_uniform_at_the_level() -> None:
    rng = np.random.default_rng(0)
    found = [kupiec(rng.uniform(size=1000) < 0.1, 0.9) for _ in range(300)]
    assert 0.02 < np.mean([p < 0.05 for p in found if p is not None]) < 0.09


def test_kupiec_is_loud_off_the_level() -> None:
    rng = np.random.default_rng(1)
    off = kupiec(rng.uniform(size=1000) < 0.16, 0.9)
    assert off is not None
    assert off < 1e-4
    assert kupiec(np.zeros(1000, np.bool_), 0.9) is not None
    assert kupiec(np.zeros(99, np.bool_), 0.9) is None


def test_christoffersen_is_loud_where_misses_come_in_runs() -> None:
    rng = np.random.default_rng(2)
    alone = [christoffersen(rng.uniform(size=1000) < 0.1) for _ in range(300)]
    assert 0.02 < np.mean([p < 0.05 for p in alone if p is not None]) < 0.1
    runs = christoffersen(np.repeat(rng.uniform(size=200) < 0.1, 5))
    assert runs is not None
    assert runs < 1e-6
    assert christoffersen(np.zeros(500, np.bool_)) is None
    assert christoffersen(np.ones(500, np.bool_)) is None
