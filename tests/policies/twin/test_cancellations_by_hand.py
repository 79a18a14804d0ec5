"""Cancellations by hand, at every place that a request can be in; both forms of the twin run them (`tiny`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.twin.cluster import Discipline
from policies.twin.outcomes import NOT_YET, Replay, Status
from policies.twin.reference.pool import replay_reference
from policies.twin.replay import replay
from policies.twin.workload import Workload
from tests.policies.twin import tiny
from tests.policies.twin.scenarios import SCENARIOS, build
from tests.policies.twin.test_engine_equals_reference import by_reference
from tests.policies.twin.tiny import MS

BY = pytest.mark.parametrize("function", [replay_reference, replay])


def run(function, load: Workload, cancel_ms: list[int], **pool) -> Replay:
    load = replace(load, cancel_ns=np.array([NOT_YET if ms < 0 else ms * MS for ms in cancel_ms], np.int64))
    known = np.full(load.requests, 16, np.int32)
    return function(
        tiny.cluster(**pool), tiny.laws(), tiny.POLICY, load, seed=0, estimated_output=known, expected_output=known
    )


def ms(times_ns: np.ndarray) -> list[float]:
    return [float(t) / MS if t != NOT_YET else NOT_YET for t in times_ns]


# Alone, 40 + 3 tokens: prefill until 14 ms, transfer until 54 ms, tokens at 59, 64 and 69 ms.
ONE = tiny.workload((10, 40, 3), pairs=[(0, 0)])


@BY
@pytest.mark.parametrize(
    ("cancel_ms", "reached"),
    [
        (9, []),
        (10, ["prefill_started_ns"]),
        (23, ["prefill_started_ns"]),
        (24, ["prefill_started_ns"]),
        (25, ["prefill_started_ns", "prefill_finished_ns", "transfer_started_ns"]),
        (
            70,
            [
                "prefill_started_ns",
                "prefill_finished_ns",
                "transfer_started_ns",
                "transfer_finished_ns",
                "first_token_ns",
            ],
        ),
    ],
)
def test_what_was_reached_stays_and_nothing_comes_after(function, cancel_ms, reached):
    result = run(function, ONE, [cancel_ms])
    assert result.status.tolist() == [Status.CANCELLED]
    stages = ("prefill_started_ns", "prefill_finished_ns", "transfer_started_ns", "transfer_finished_ns")
    stages += ("first_token_ns", "finished_ns")
    # At 10 ms it arrives and is cancelled before its P has a boundary.
    expected = [] if cancel_ms == 10 else reached
    assert [name for name in stages if getattr(result, name)[0] != NOT_YET] == expected
    assert ms(result.released_ns) == [min(cancel_ms, 64.0) if expected else NOT_YET]


@BY
def test_after_its_end_nothing_happens(function):
    result = run(function, ONE, [79])
    assert result.status.tolist() == [Status.CANCELLED]
    assert run(function, ONE, [80]).status.tolist() == [Status.COMPLETED]


@BY
def test_one_in_the_queue_lets_the_next_one_start_earlier(function):
    load = tiny.workload((0, 60, 1), (1, 64, 1), (2, 64, 1), pairs=[(0, 0)] * 3)
    # 60 tokens until 16 ms together with 4 of the second; that goes, and the third has the next step to itself.
    pool = {"discipline": Discipline(chunk_tokens=64, prefill_max_seqs=1)}
    assert ms(run(function, load, [-1, -1, -1], **pool).prefill_finished_ns) == [16.0, 32.4, 48.8]
    assert ms(run(function, load, [-1, 5, -1], **pool).prefill_finished_ns) == [16.0, NOT_YET, 32.4]


@BY
def test_blocks_of_a_running_prompt_unblock_p_at_the_end_of_its_step(function):
    """64 tokens take all 4 blocks of P; the step under way lasts until 16.4 ms all the same."""
    load = tiny.workload((0, 64, 1), (1, 64, 1), pairs=[(0, 0)] * 2)
    result = run(function, load, [5, -1], prefill_blocks=(4,))
    assert ms(result.prefill_started_ns) == [0.0, 16.4]


@BY
def test_kv_that_d_has_no_room_for_unblocks_an_idle_p_at_once(function):
    """The first runs on D until 230 ms; until then the second has no room there and fills P."""
    load = tiny.workload((0, 64, 30), (1, 64, 1), (2, 64, 1), pairs=[(0, 0)] * 3)
    result = run(function, load, [-1, 200, -1], prefill_blocks=(4,), decode_blocks=(7,))
    assert ms(result.prefill_started_ns) == [0.0, 80.4, 200.0]
    assert ms(result.transfer_started_ns)[1] == NOT_YET


@BY
def test_a_transfer_leaves_its_port_to_the_other(function):
    load = tiny.workload((0, 20, 1), (0, 20, 1), pairs=[(0, 0)] * 2)
    # Handed off at 14 ms, both at half speed: at 24 ms 5 of 20 tokens are there.
    result = run(function, load, [-1, 24])
    assert ms(result.transfer_drained_ns) == [39.0, NOT_YET]


@BY
def test_the_last_sequence_breaks_the_step_off(function):
    """D's one place is free at 57 ms, not at 59, and the next prompt's transfer begins there."""
    load = tiny.workload((0, 40, 100), (1, 100, 1), pairs=[(0, 0)] * 2)
    result = run(function, load, [57, -1], decode_blocks=(9,))
    assert ms(result.transfer_started_ns) == [14.0, 57.0]


@BY
def test_another_sequence_goes_on_as_if_nothing_had_been(function):
    load = tiny.workload((0, 20, 8), (0, 20, 8), pairs=[(0, 0)] * 2)
    result = run(function, load, [-1, 66])
    # Both run from 54 ms on, a step takes 5 ms.
    assert ms(result.first_token_ns) == [59.0, 59.0]
    assert ms(result.finished_ns) == [94.0, NOT_YET]


def test_many_scenarios_cancel_and_at_every_place():
    some = [number for number in range(SCENARIOS) if build(number).workload.cancel_ns is not None]
    assert len(some) >= 60
    places = {
        "queued": lambda r: (r.prefill_node >= 0) & (r.prefill_started_ns < 0),
        "computing": lambda r: (r.prefill_started_ns >= 0) & (r.prefill_finished_ns < 0),
        "held": lambda r: (r.prefill_finished_ns >= 0) & (r.transfer_started_ns < 0),
        "moving": lambda r: (r.transfer_started_ns >= 0) & (r.transfer_finished_ns < 0),
        "landed": lambda r: (r.transfer_finished_ns >= 0) & (r.activated_ns < 0),
        "running": lambda r: r.activated_ns >= 0,
        "preempted": lambda r: (r.activated_ns >= 0) & (r.preemptions > 0),
        "not arrived": lambda r: r.prefill_node < 0,
    }
    counts = dict.fromkeys(places, 0)
    for number in some:
        r = by_reference(number)
        for name, at in places.items():
            counts[name] += bool((at(r) & (r.status == Status.CANCELLED)).any())
        if min(counts.values()) >= 3:
            return
    raise AssertionError(counts)
