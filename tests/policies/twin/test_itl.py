"""The histogram of gaps between tokens: its bins, its quantiles, and that every token but a first one is in it."""

from __future__ import annotations

import numpy as np
import pytest

from policies.twin.itl import BINS, bin_edges_ns, bin_of, quantile_s
from policies.twin.outcomes import Status
from policies.twin.reference.pool import replay_reference
from policies.twin.replay import replay
from tests.policies.twin import tiny
from tests.policies.twin.scenarios import build
from tests.policies.twin.test_engine_equals_reference import run


def test_bins_are_narrow_and_without_holes():
    edges = bin_edges_ns()
    assert edges[0] == 0
    assert (np.diff(edges[256:]) / edges[256:-1]).max() <= 0.01
    for ns in (0, 1, 255, 256, 257, 511, 512, 10**6, 33_000_123, 2**40 - 1, 2**61):
        at = bin_of(ns)
        assert edges[at] <= ns < edges[at + 1], ns
    assert bin_of(2**62 - 1) < BINS


def test_quantiles_are_the_gaps_of_their_rank():
    gaps = np.sort(np.random.default_rng(0).integers(1, 10**8, 1_000))
    counts = np.zeros((2, BINS), np.int64)
    for k, gap in enumerate(gaps):
        counts[k % 2, bin_of(int(gap))] += 1
    for level in (0.0, 0.5, 0.9, 0.99, 1.0):
        exact = gaps[max(int(np.ceil(level * 1_000)), 1) - 1] / 1e9
        assert quantile_s(counts, level) == pytest.approx(exact, rel=0.005, abs=1e-9)
    assert np.isnan(quantile_s(np.zeros(BINS, np.int64), 0.5))


@pytest.mark.parametrize("function", [replay_reference, replay])
def test_a_step_is_a_gap_for_everyone_who_made_a_token_before(function):
    load = tiny.workload((0, 16, 4), (0, 16, 2), pairs=[(0, 0)] * 2)
    known = np.full(2, 16, np.int32)
    result = function(
        tiny.cluster(), tiny.laws(), tiny.POLICY, load, seed=0, estimated_output=known, expected_output=known
    )
    # Steps of 5 ms: three gaps of the first answer, one of the second.
    assert result.itl_counts.sum() == 4
    assert result.itl_counts[0, bin_of(5_000_000)] == 4


@pytest.mark.parametrize("number", range(0, 60, 7))
def test_every_token_but_the_first_is_a_gap(number):
    scenario = build(number)
    result = run(replay, scenario)
    ended = result.status == Status.COMPLETED
    least = (np.maximum(scenario.workload.output_tokens, 1)[ended] - 1).sum()
    others = (result.first_token_ns >= 0) & ~ended
    if others.any():
        assert result.itl_counts.sum() >= least
    else:
        assert result.itl_counts.sum() == least
    assert (result.itl_counts >= 0).all()
