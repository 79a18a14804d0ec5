"""Prompts cut into segments, and what routers see of prefix caches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.errors import TwinError
from models.portable.cache import CacheLaw
from policies.twin import cluster as cluster_module
from policies.twin import segments as segments_module
from policies.twin.cluster import Cluster, Discipline, RouterSetup
from policies.twin.engine import empty
from policies.twin.reference.convert import requests_of
from policies.twin.reference.pool import replay_reference
from policies.twin.reference.prefill import PrefillNode
from policies.twin.reference.signals import CacheSignals
from policies.twin.replay import replay
from policies.twin.segments import cut, segments_of
from tests.policies.twin import tiny
from tests.policies.twin.scenario import Scenario
from tests.policies.twin.scenarios import SCENARIOS, build, make_blocks
from tests.policies.twin.test_engine_equals_reference import assert_same, run
from tests.policies.twin.tiny import MS


def blocks_of(prompts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array([block for prompt in prompts for block in prompt], np.int32)
    return ids, np.cumsum([0, *(len(prompt) for prompt in prompts)]).astype(np.int64)


def sizes_of(prompts: list[list[int]]) -> list[list[int]]:
    segments = cut(*blocks_of(prompts))
    size = np.diff(segments.start)
    return [size[segments.refs[a:b]].tolist() for a, b in zip(segments.offset[:-1], segments.offset[1:], strict=True)]


@pytest.mark.parametrize(
    ("prompts", "sizes"),
    [
        ([[0, 1, 2]], [[3]]),
        ([[0, 1, 2], [], [0, 1, 2]], [[3], [], [3]]),
        ([[0, 1, 2, 3], [0, 1, 4]], [[2, 2], [2, 1]]),
        ([[0, 1, 2], [0, 1]], [[2, 1], [2]]),
        ([[0, 1, 2], [3, 1, 2]], [[1, 2], [1, 2]]),
        ([[0, 0, 1]], [[1, 1, 1]]),
        ([[0, 1, 0, 1]], [[2, 2]]),
        ([], []),
        ([[], []], [[], []]),
    ],
)
def test_blocks_that_always_stand_together_are_a_segment(prompts, sizes):
    assert sizes_of(prompts) == sizes


@pytest.mark.parametrize("seed", range(20))
def test_segments_list_the_same_blocks(seed, monkeypatch):
    monkeypatch.setattr(segments_module, "_PIECE", 7)
    rng = np.random.default_rng(seed)
    ids, offset = make_blocks(rng, rng.integers(0, 40, 50))
    segments = cut(ids, offset)
    listed = np.concatenate([np.arange(segments.start[s], segments.start[s + 1]) for s in segments.refs])
    assert len(set(zip(ids.tolist(), listed.tolist(), strict=True))) == len(set(ids.tolist())) == segments.start[-1]
    ends = np.cumsum(np.diff(segments.start)[segments.refs])
    assert np.concatenate([[0], ends])[segments.offset].tolist() == offset.tolist()


def test_segments_are_kept_with_the_blocks_and_follow_a_part_of_them():
    whole = tiny.workload((0, 64, 1), (1, 64, 1), pairs=[(0, 0)] * 2, blocks=[[0, 1, 2], [0, 1, 3]])
    assert segments_of(whole) is segments_of(whole)
    assert segments_of(replace(whole, block_offset=whole.block_offset[1:])).offset.tolist() == [0, 1]


def signals(**setup: object) -> CacheSignals:
    return CacheSignals(RouterSetup(**setup), nodes=2, block_tokens=tiny.BLOCK, seed=3)  # type: ignore[arg-type]


REQUEST = requests_of(
    tiny.workload((0, 64, 1), pairs=[(-1, -1)], blocks=[[0, 1, 2, 3]]), tiny.POLICY, np.ones(1), np.ones(1)
)[0]


@pytest.mark.parametrize(
    ("setup", "changed_ms", "unseen_ns", "seen_ns"),
    [
        ({"cache_period_ns": 10 * MS}, 7, 10 * MS, 10 * MS + 1),
        ({"cache_period_ns": 10 * MS}, 10, 10 * MS, 10 * MS + 1),
        ({"cache_period_ns": 10 * MS, "cache_delay_ns": 5 * MS}, 11, 25 * MS, 25 * MS + 1),
        ({"cache_delay_ns": 5 * MS}, 7, 12 * MS, 12 * MS + 1),
        ({}, 7, None, 7 * MS),
    ],
)
def test_a_change_is_seen_after_its_publication_and_the_delay(setup, changed_ms, unseen_ns, seen_ns):
    view = signals(**setup)
    view.changed(1, 0, True, changed_ms * MS)
    view.changed(1, 1, True, changed_ms * MS)
    if unseen_ns is not None:
        assert view.hit_tokens(REQUEST, unseen_ns) == [0, 0]
    assert view.hit_tokens(REQUEST, seen_ns) == [0, 32]


@pytest.mark.parametrize("setup", [{"cache_loss_frac": 1.0}, {"cache_period_ns": -1}, {"cache_delay_ns": -1}])
def test_a_view_that_cannot_be_is_refused(setup):
    with pytest.raises(TwinError, match=f"{next(iter(setup))}.*must hold"):
        RouterSetup(**setup)


def test_a_lost_change_is_never_seen_and_later_ones_are():
    view = signals(cache_loss_frac=0.5)
    for block in (0, 1, 2, 3):
        view.changed(0, block, True, 0)
    kept = {change.block for change in view.log}
    assert view.hit_tokens(REQUEST, 1)[0] == next(k for k in range(5) if k not in kept) * tiny.BLOCK
    assert 0 < len(kept) < 4
    assert view.seen[0] == kept


def lagging(number: int, **setup: object) -> Scenario:
    scenario = build(number)
    return replace(scenario, cluster=with_routers(scenario.cluster, **setup))


def with_routers(cluster: Cluster, **setup: object) -> Cluster:
    return replace(cluster, routers=replace(cluster.routers, **setup))  # type: ignore[arg-type]


@pytest.mark.parametrize("number", range(4))
def test_a_full_log_shows_its_oldest_change_at_once(number, monkeypatch):
    monkeypatch.setattr(cluster_module, "CACHE_LOG", 5)
    monkeypatch.setattr(empty, "CACHE_LOG", 5)
    scenario = lagging(number, cache_period_ns=0, cache_delay_ns=10**9, cache_loss_frac=0.0)
    assert_same(run(replay, scenario), run(replay_reference, scenario))


def test_views_of_more_than_64_nodes_agree():
    pool = tiny.cluster(prefill_blocks=(6,) * 70, routers=RouterSetup(cache_period_ns=MS, cache_loss_frac=0.2))
    rng = np.random.default_rng(0)
    rows = [(3 * i, int(prompt), 2) for i, prompt in enumerate(rng.integers(1, 90, 300))]
    ids, offset = make_blocks(rng, np.array([prompt // tiny.BLOCK for _, prompt, _ in rows]))
    load = replace(tiny.workload(*rows, pairs=[(-1, -1)] * 300), block_ids=ids, block_offset=offset)
    scenario = replace(
        build(1), cluster=pool, laws=tiny.laws(), decision_laws=None, workload=load, noise=None,
        policy=replace(tiny.POLICY, family="routecal"),
    )  # fmt: skip
    found = run(replay, scenario)
    assert_same(found, run(replay_reference, scenario))
    assert found.counters.hit_blocks > 0
    assert (found.prefill_node >= 64).any()


def test_a_late_view_changes_many_scenarios():
    changed = 0
    for number in range(SCENARIOS):
        scenario = build(number)
        setup = scenario.cluster.routers
        if setup.cache_period_ns or setup.cache_delay_ns or setup.cache_loss_frac:
            live = lagging(number, cache_period_ns=0, cache_delay_ns=0, cache_loss_frac=0.0)
            ends = [run(replay, one).prefill_started_ns for one in (scenario, live)]
            changed += not np.array_equal(*ends)
    assert changed >= 10


TTL = replace(tiny.laws(), cache={"p-0": CacheLaw(capacity_blocks=64, ttl_s=0.2)})
"""Blocks of the first prompt become unpinned when its 64 tokens were sent: after 16.4 + 64 ms."""


@pytest.mark.parametrize(("at_ms", "cached"), [(280, 48), (281, 0)])
def test_an_idle_node_forgets_a_block_that_was_unpinned_too_long(at_ms, cached):
    load = tiny.workload((0, 64, 1), (at_ms, 64, 1), pairs=[(0, 0)] * 2, blocks=[[0, 1, 2, 3]] * 2)
    known = np.full(2, 16, np.int32)
    result = replay_reference(
        tiny.cluster(), TTL, tiny.POLICY, load, seed=0, estimated_output=known, expected_output=known
    )
    assert result.cached_tokens.tolist() == [0, cached]
    # What the second one leaves behind times out too.
    assert result.counters.timed_out == (4 if cached else 8)


def test_a_busy_node_forgets_at_its_boundary():
    rows = ((0, 64, 1), (270, 64, 1), (280, 64, 1))
    load = tiny.workload(*rows, pairs=[(0, 0)] * 3, blocks=[[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]])
    known = np.full(3, 16, np.int32)
    result = replay_reference(
        tiny.cluster(), TTL, tiny.POLICY, load, seed=0, estimated_output=known, expected_output=known
    )
    # The third one came in time, but the step under way ends at 286.4.
    assert result.cached_tokens.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("order", "starts_ms"), [("fifo", [0, 16.4, 32.8, 49.2]), ("priority", [0, 49.2, 16.4, 32.8])])
def test_the_lowest_priority_is_computed_first(order, starts_ms):
    pool = tiny.cluster(discipline=Discipline(chunk_tokens=64, queue_order=order))
    load = tiny.workload((0, 64, 1), (1, 64, 1), (2, 64, 1), (3, 64, 1), pairs=[(0, 0)] * 4)
    result = tiny.run(pool, replace(load, priority=np.array([7, 2, -1, -1], np.int32)))
    assert (result.prefill_started_ns / MS).round(6).tolist() == starts_ms


def test_priorities_are_few():
    load = tiny.workload(*[(0, 16, 1)] * 70, pairs=[(-1, -1)] * 70)
    pool = tiny.cluster(discipline=Discipline(queue_order="priority"))
    known = np.full(70, 16, np.int32)
    with pytest.raises(TwinError, match="at most 64 different priorities, got 70"):
        replay(
            pool, tiny.laws(), tiny.POLICY, replace(load, priority=np.arange(70, dtype=np.int32)), seed=0,
            estimated_output=known, expected_output=known,
        )  # fmt: skip


def test_a_restarted_node_is_as_new():
    pool = tiny.cluster()
    node = PrefillNode(0, pool.prefill[0], tiny.BLOCK, pool.discipline, tiny.laws(), 0, None, signals())
    first, second = requests_of(
        tiny.workload((0, 64, 1), (0, 64, 1), pairs=[(0, 0)] * 2, blocks=[[0, 1, 2, 3], [0, 1, 4, 5]]),
        tiny.POLICY,
        np.ones(2, np.int32),
        np.ones(2, np.int32),
    )
    node.join(first, 0)
    node.boundary(0)
    node.join(second, 5)
    assert node.boundary(16_400_000) == [first]
    node.release(first, 17_000_000)
    node.drop(second, 18_000_000)
    node.restart(18_000_000)
    assert (node.pinned, len(node.references), node.backlog_tokens, node.backlog_requests) == (0, 0, 0, 0)
    assert (node.boundary_ns, node.step_tokens) == (None, None)
    assert node.signals.hit_tokens(first, 18_000_000) == [0, 0]
    node.join(second, 20_000_000)
    assert node.boundary_ns == 20_000_000


@pytest.mark.parametrize("rule", [{"queue_order": "fifo"}, {"step_tokens": "sum"}])
def test_rules_of_prefill_change_many_scenarios(rule):
    changed = 0
    for number in range(0, SCENARIOS, 4):
        scenario = build(number)
        other = replace(scenario.cluster, discipline=replace(scenario.cluster.discipline, **rule))
        if other != scenario.cluster:
            ends = [run(replay, one).prefill_finished_ns for one in (scenario, replace(scenario, cluster=other))]
            changed += not np.array_equal(*ends)
    assert changed >= 8


def test_many_scenarios_show_blocks_that_time_out():
    assert sum(run(replay, build(number)).counters.timed_out > 0 for number in range(0, SCENARIOS, 4)) >= 15
