"""Scores against their definitions and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from models.length.scores import christoffersen, crps, kupiec, score_blocks, score_length
from models.metrics import pinball_loss
from models.portable.length import ALL
from tests.models.length.samples import everything, requests, small_law


def test_crps_of_many_quantiles_is_that_of_the_distribution() -> None:
    levels = tuple(((np.arange(2000) + 0.5) / 2000).tolist())
    quantiles = stats.norm.ppf(levels)
    true = np.random.default_rng(1).normal(0.5, 1.0, 200)
    # CRPS of a normal forecast in closed form (Gneiting & Raftery 2007).
    exact = true * (2 * stats.norm.cdf(true) - 1) + 2 * stats.norm.pdf(true) - 1 / math.sqrt(math.pi)
    assert crps(true, np.tile(quantiles, (200, 1)), levels) == pytest.approx(exact.mean(), rel=2e-3)


def test_crps_is_twice_the_mean_pinball() -> None:
    true, quantiles = np.array([3.0, 8.0]), np.array([[2.0, 5.0], [4.0, 9.0]])
    mean = (pinball_loss(true, quantiles[:, 0], level=0.5) + pinball_loss(true, quantiles[:, 1], level=0.9)) / 2
    assert crps(true, quantiles, (0.5, 0.9)) == pytest.approx(2 * mean)


@given(st.integers(1, 2000), st.floats(0.01, 0.5), st.data())
def test_kupiec_is_the_likelihood_ratio(count: int, share: float, data: st.DataObject) -> None:
    misses = data.draw(st.integers(0, count))
    likely = stats.binom.logpmf(misses, count, misses / count) - stats.binom.logpmf(misses, count, share)
    expected = stats.chi2.sf(2 * likely, 1)
    assert kupiec(misses, count, expected_frac=share) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_misses_in_runs_are_told_from_independent_ones() -> None:
    rng = np.random.default_rng(2)
    p = [christoffersen(rng.random(2000) < 0.1) for _ in range(200)]
    assert 0.01 < np.mean(np.array(p) < 0.05) < 0.12
    runs = np.repeat(rng.random(400) < 0.1, 5)
    assert christoffersen(runs) < 1e-6
    assert christoffersen(np.zeros(10, np.bool_)) == christoffersen(np.ones(10, np.bool_)) == 1.0


def test_christoffersen_counts_pairs() -> None:
    missed = np.array([0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0], np.bool_)
    table = np.zeros((2, 2))
    for before, after in zip(missed[:-1].astype(int), missed[1:].astype(int), strict=True):
        table[before, after] += 1
    expected = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood").pvalue
    assert christoffersen(missed) == pytest.approx(expected)


def test_groups_are_scored_all_first() -> None:
    scores = score_length(small_law(), everything(np.random.default_rng(3), 2000))
    names = list(dict.fromkeys(score.slo_class for score in scores))
    assert names[0] == ALL
    assert names[1:] == sorted(names[1:])
    assert {"chat", "chat/a", "batch"} <= set(names)
    assert [score.level for score in scores[:2]] == [0.5, 0.9]
    everyone = scores[0]
    assert everyone.rows == 2000
    assert 0.0 <= everyone.kupiec_p <= 1.0
    assert everyone.coverage.low_frac <= everyone.coverage.covered_frac <= everyone.coverage.high_frac


def test_blocks_split_all_rows_by_time() -> None:
    table = requests(np.random.default_rng(4), 3000)
    blocks = score_blocks(small_law(), table, block_us=1_000_000)
    assert [(score.block_us, score.level, score.rows) for score in blocks] == [
        (at * 1_000_000, level, 1000) for at in range(3) for level in (0.5, 0.9)
    ]
    whole = score_length(small_law(), table)[1]
    at_level = [score for score in blocks if score.level == 0.9]
    assert np.mean([s.pinball_tokens for s in at_level]) == pytest.approx(whole.pinball_tokens)


def test_no_requests_no_scores() -> None:
    empty = requests(np.random.default_rng(5), 3).clear()
    assert score_length(small_law(), empty) == score_blocks(small_law(), empty) == ()
