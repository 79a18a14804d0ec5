"""Closed loops: turns that wait for the answer before, by hand and from logs; both forms of the twin run them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.errors import TwinError
from policies.policy import Policy
from policies.twin.cluster import Discipline
from policies.twin.outcomes import NOT_YET, Replay, Status
from policies.twin.reference.pool import replay_reference
from policies.twin.replay import replay
from policies.twin.sessions import closed_loop
from policies.twin.workload import Workload
from tests.policies.twin import tiny
from tests.policies.twin.scenarios import SCENARIOS, build
from tests.policies.twin.test_engine_equals_reference import by_reference
from tests.policies.twin.tiny import MS

BY = pytest.mark.parametrize("function", [replay_reference, replay])


def follows(load: Workload, parent: list[int], think_ms: list[int]) -> Workload:
    think_ns = np.array([NOT_YET if ms < 0 else ms * MS for ms in think_ms], np.int64)
    return replace(load, parent=np.array(parent, np.int32), think_ns=think_ns)


def run(function, load: Workload, policy: Policy = tiny.POLICY, **pool) -> Replay:
    known = np.full(load.requests, 16, np.int32)
    return function(
        tiny.cluster(**pool), tiny.laws(), policy, load, seed=0, estimated_output=known, expected_output=known
    )


@BY
def test_a_turn_arrives_when_its_user_has_thought(function):
    """40 + 3 tokens take 14 + 40 + 15 ms."""
    load = tiny.workload((0, 40, 3), (1, 40, 3), (2, 40, 3), pairs=[(0, 0)] * 3)
    result = run(function, follows(load, [-1, 0, 1], [-1, 100, 7]))
    assert (result.arrived_ns / MS).tolist() == [0, 169, 245]
    assert (result.finished_ns / MS).tolist() == [69, 238, 314]


@BY
def test_it_follows_any_end(function):
    """The first is too large, the third given up in P's queue."""
    load = tiny.workload((5, 5000, 1), (6, 40, 1), (6, 40, 1), (7, 40, 1), pairs=[(0, 0)] * 4)
    load = replace(load, cancel_ns=np.array([-1, -1, 8, -1]) * MS)
    result = run(function, follows(load, [-1, 0, -1, 2], [-1, 10, -1, 20]))
    assert (result.arrived_ns / MS).tolist() == [5, 15, 6, 28]
    assert result.status.tolist() == [Status.TOO_LARGE, Status.COMPLETED, Status.CANCELLED, Status.COMPLETED]


@BY
def test_patience_counts_from_the_arrival(function):
    load = tiny.workload((0, 40, 3), (1, 40, 3), pairs=[(0, 0)] * 2)
    load = replace(load, cancel_ns=np.array([-1, 1 + 30]) * MS)
    result = run(function, follows(load, [-1, 0], [-1, 100]))
    # Arrives at 169 ms, is handed off at 183, gives up at 199.
    assert result.status.tolist() == [Status.COMPLETED, Status.CANCELLED]
    assert result.prefill_finished_ns[1] == 183 * MS


@BY
def test_a_decision_at_the_same_boundary_does_not_hide_an_end(function):
    """The second and third leave P at 24 ms: one has its only token, for the other the D is chosen then."""
    load = tiny.workload((0, 20, 2), (1, 10, 1), (2, 10, 2), (3, 10, 1), pairs=[(0, 0), (-1, -1), (-1, -1), (-1, -1)])
    load = follows(load, [-1, -1, -1, 1], [-1, -1, -1, 5])
    late = replace(tiny.POLICY, decode_moment="handoff")
    result = run(function, load, policy=late, discipline=Discipline(chunk_tokens=64, first_token="prefill"))
    assert (result.prefill_finished_ns / MS).tolist() == [12, 24, 24, 40]
    assert (result.arrived_ns / MS).tolist() == [0, 1, 2, 29]


def test_many_scenarios_have_sessions():
    closed = [number for number in range(SCENARIOS) if build(number).workload.parent is not None]
    assert len(closed) >= 20
    for number in closed:
        load, result = build(number).workload, by_reference(number)
        turns = np.flatnonzero(load.parent >= 0)
        done = result.finished_ns[load.parent[turns]]
        waited = (result.arrived_ns[turns] - done)[done >= 0]
        np.testing.assert_array_equal(waited, load.think_ns[turns][done >= 0])


def test_the_log_says_what_follows_and_how_long_was_thought():
    load = tiny.workload((0, 40, 3), (5, 40, 3), (200, 40, 3), (300, 40, 3), (310, 40, 3), pairs=[(0, 0)] * 5)
    finished = np.array([100, 150, -1, 400, 500]) * MS
    made = closed_loop(load, finished, session_id=["a", "b", "a", "b", "a"])
    # The second turn of a thought 100 ms; the third's parent never finished; b's second 150 ms.
    assert made.parent.tolist() == [-1, -1, 0, 1, -1]
    assert made.think_ns.tolist() == [-1, -1, 100 * MS, 150 * MS, -1]
    named = closed_loop(
        replace(load, request_ids=tuple("vwxyz")),
        finished,
        session_id=["a", "b", "a", "b", "a"],
        parent_request_id=[None, "v", None, "z", "nobody"],
    )
    # The second names the first, which ended after it came: it thinks 1 ns. The fourth names a later row.
    assert named.parent.tolist() == [-1, 0, 0, -1, -1]
    assert named.think_ns.tolist() == [-1, 1, 100 * MS, -1, -1]


def test_what_does_not_fit_is_refused():
    load = tiny.workload((0, 40, 3), (5, 40, 3), pairs=[(0, 0)] * 2)
    with pytest.raises(TwinError, match="one value"):
        closed_loop(load, np.zeros(3, np.int64))
    with pytest.raises(TwinError, match="ids"):
        closed_loop(load, np.zeros(2, np.int64), parent_request_id=[None, "x"])
    for parent, think in (([1, -1], [1, -1]), ([-1, 0], [-1, 0])):
        with pytest.raises(TwinError):
            run(replay, replace(load, parent=np.array(parent, np.int32), think_ns=np.array(think)))
