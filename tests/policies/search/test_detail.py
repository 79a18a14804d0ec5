"""A replay looked at closely: it is the replay that was scored, and its sample and its D-time are what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from policies.search.cases import Case
from policies.search.detail import DECISIONS, POLLS, watched
from policies.search.replay import ReplayFactory
from policies.twin.cluster import Node
from tests.policies import world
from tests.policies.search.test_replay import default, prepared


def test_a_closer_look_is_at_the_same_replay(tmp_path: Path) -> None:
    evaluate = prepared(tmp_path).build()
    score, seen = evaluate(default(), Case("d1")), evaluate.detail(default(), Case("d1"))
    assert seen.outcome == score.outcome
    assert float((seen.met * seen.weight).sum() / seen.weight.sum()) == score.goodput_frac
    share = np.bincount(seen.prefill_node) / len(seen.prefill_node)
    assert tuple(share) == pytest.approx(score.outcome.prefill_share)
    assert len(seen.regret_ttft_s) == 600
    assert np.nanmin(seen.regret_ttft_s) >= 0
    # A router that sees the live state takes the hindsight's pair but for the ends of the score that are no TTFT.
    assert np.nanmean(seen.regret_ttft_s == 0) > 0.5


def test_d_time_above_high_water_falls_with_the_size_of_d(tmp_path: Path) -> None:
    factory = prepared(tmp_path)

    def above(blocks: int, high_water: float = 0.85) -> float:
        nodes = tuple(Node(f"d{i}", "a", blocks, 100.0) for i in range(2))
        sized: ReplayFactory = replace(factory, cluster=replace(world.cluster(), decode=nodes))
        return sized.build().detail(replace(default(), high_water=high_water), Case("d1")).above_high_water_frac

    assert above(10**6) == 0.0
    assert 0.0 < above(400) < above(200) <= 1.0
    assert above(400, 0.2) > above(400, 0.9)


def test_the_sample_is_spread_over_each_class_and_the_whole_window() -> None:
    load = world.workload(9000, rate_per_s=3.0, warm_up=1000)
    recording = watched(world.cluster(), load)
    rows = recording.decision_requests
    assert len(rows) == DECISIONS
    assert (np.diff(rows) > 0).all()
    assert load.scored[rows].all()
    assert np.bincount(load.class_index[rows]).tolist() == [DECISIONS // 2] * 2
    assert np.quantile(rows, (0.25, 0.75)) == pytest.approx([3000, 7000], rel=0.05)
    assert len(recording.poll_ns) == POLLS
    assert load.arrival_ns[1000] < recording.poll_ns[0]
    assert recording.poll_ns[-1] == load.arrival_ns[-1]


def test_a_large_pool_has_fewer_decisions_measured_and_a_short_window_fewer_polls() -> None:
    recording = watched(world.cluster(200, 200), world.workload(300))
    assert len(recording.decision_requests) == 10
    assert 20 < len(recording.poll_ns) < 40
    nobody = watched(world.cluster(), world.workload(20, warm_up=20))
    assert len(nobody.decision_requests) == len(nobody.poll_ns) == 0
