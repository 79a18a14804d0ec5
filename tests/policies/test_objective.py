"""Latencies, goodput and the outcome, against hand-made replays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.errors import TwinError
from policies import objective
from policies.objective import ClassTarget, Goal
from tests.policies import world


def test_latency_is_measured_from_arrival_and_per_token() -> None:
    load = replace(world.workload(3), output_tokens=np.array([11, 1, 2], np.int32))
    replay = world.replay_of(load, np.array([0.5, 1.0, 2.0]), np.array([0.02, 0.9, 0.04]))
    times = objective.latency(load, replay)
    assert times.ttft_s == pytest.approx([0.5, 1.0, 2.0])
    assert times.tpot_s == pytest.approx([0.02, 0.0, 0.04])  # one token has no time per output token
    assert times.e2e_s == pytest.approx([0.7, 1.0, 2.04])


def test_a_request_that_did_not_complete_meets_nothing() -> None:
    load = world.workload(4)
    replay = world.replay_of(load, np.full(4, 0.1), np.full(4, 0.01), np.array([0, 1, 2, 3]))
    times = objective.latency(load, replay)
    assert np.isnan(times.ttft_s).tolist() == [False, True, True, True]
    assert objective.met(load, times, world.GOAL).tolist() == [True, False, False, False]
    assert objective.softened(load, times, world.GOAL)[1:].tolist() == [0.0, 0.0, 0.0]


def test_both_targets_must_be_met_and_no_target_is_always_met() -> None:
    load = replace(world.workload(4), class_index=np.array([0, 0, 0, 1], np.int32))
    replay = world.replay_of(load, np.array([1.0, 1.001, 0.5, 3.0]), np.array([0.029, 0.01, 0.031, 9.0]))
    times = objective.latency(load, replay)
    assert objective.met(load, times, world.GOAL).tolist() == [True, False, False, True]


def test_softened_is_half_on_the_target_and_falls_with_lateness() -> None:
    goal = Goal((ClassTarget("chat", ttft_s=1.0),), width=0.15)
    load = replace(world.workload(4), class_index=np.zeros(4, np.int32))
    replay = world.replay_of(load, np.array([0.01, 1.0, 1.15, 900.0]), np.full(4, 0.01))
    soft = objective.softened(load, objective.latency(load, replay), goal)
    assert soft == pytest.approx([1.0, 0.5, 0.2826, 0.0], abs=1e-4)


def test_goodput_uses_business_weights() -> None:
    load = replace(world.workload(4), class_index=np.array([0, 0, 1, 1], np.int32))
    replay = world.replay_of(load, np.array([0.5, 5.0, 1.0, 1.0]), np.full(4, 0.01))
    result = objective.outcome(world.cluster(), load, replay, world.GOAL)
    assert result.goodput_frac == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert result.goodput_frac_by_class == pytest.approx({"chat": 0.5, "batch": 1.0})


def test_outcome_counts_scored_requests_only() -> None:
    load = world.workload(200, warm_up=50)
    status = np.zeros(200, np.int64)
    status[[0, 60]], status[61], status[62] = 1, 2, 3
    result = objective.outcome(
        world.cluster(), load, world.replay_of(load, np.full(200, 0.2), np.full(200, 0.01), status), world.GOAL
    )
    assert (result.requests, result.completed, result.rejected, result.failed) == (150, 147, 2, 1)
    assert result.ttft_ms.p99 == pytest.approx(200.0)
    assert result.tpot_ms.p50 == pytest.approx(10.0, rel=1e-3)
    assert result.reused_tokens == 147 * 64
    done = np.setdiff1d(np.arange(50, 200), [60, 61, 62])
    assert result.transferred_bytes == int(load.prompt_tokens[done].sum()) * 1000
    assert sum(result.prefill_share) == pytest.approx(1.0)
    assert result.decode_share == (1.0, 0.0)


def test_outcome_of_nothing_completed_has_no_quantiles() -> None:
    load = world.workload(5)
    result = objective.outcome(
        world.cluster(), load, world.replay_of(load, np.ones(5), np.ones(5), np.full(5, 1)), world.GOAL
    )
    assert result.ttft_ms.p50 is None
    assert (result.goodput_frac, result.output_tokens_per_s, result.prefill_share) == (0.0, 0.0, (0.0, 0.0))


def test_block_sums_add_up_to_goodput() -> None:
    load = world.workload(3000, warm_up=200)
    replay = world.replay_of(load, np.random.default_rng(1).uniform(0.5, 2.0, 3000), np.full(3000, 0.02))
    ok, weight = objective.met(load, objective.latency(load, replay), world.GOAL), objective.weights(load, world.GOAL)
    blocks = objective.block_sums(load, ok, weight)
    assert len(blocks.value) == int((load.arrival_ns[-1] - load.arrival_ns[200]) // 5_000_000_000) + 1
    assert blocks.value.sum() / blocks.weight.sum() == pytest.approx(objective.goodput_frac(ok, weight))


def test_an_unknown_class_is_refused() -> None:
    load = replace(world.workload(3), class_index=np.array([0, 1, 2], np.int32))
    replay = world.replay_of(load, np.ones(3), np.ones(3))
    with pytest.raises(TwinError, match="class"):
        objective.met(load, objective.latency(load, replay), world.GOAL)


def test_a_deadline_is_from_the_arrival_to_the_last_token() -> None:
    goal = Goal((ClassTarget("batch", deadline_s=2.0),), width=0.15)
    load = replace(world.workload(3), class_index=np.zeros(3, np.int32), output_tokens=np.array([11, 11, 1], np.int32))
    replay = world.replay_of(load, np.array([1.0, 1.01, 1.9]), np.array([0.1, 0.1, 0.1]))
    times = objective.latency(load, replay)
    assert objective.met(load, times, goal).tolist() == [True, False, True]
    assert objective.softened(load, times, goal)[0] == pytest.approx(0.5)


def test_token_throughput_counts_tokens_that_came_fast_enough() -> None:
    """10 tokens/s: 100 tokens may take 10 s; a request is worth its tokens."""
    goal = Goal((ClassTarget("batch", tokens_per_s=10.0, weight=2.0), ClassTarget("chat", ttft_s=1.0)))
    load = replace(
        world.workload(4),
        class_index=np.array([0, 0, 0, 1], np.int32),
        output_tokens=np.array([101, 11, 8, 5], np.int32),
    )
    replay = world.replay_of(load, np.array([1.0, 1.0, 0.5, 0.2]), np.array([0.09, 0.02, 0.1, 0.1]))
    times = objective.latency(load, replay)
    assert objective.met(load, times, goal).tolist() == [True, False, False, True]
    weight = objective.weights(load, goal)
    assert weight == pytest.approx([2 * 101 / 40, 2 * 11 / 40, 2 * 8 / 40, 1.0])
    assert objective.goodput_frac(objective.met(load, times, goal)[:3], weight[:3]) == pytest.approx(101 / 120)
