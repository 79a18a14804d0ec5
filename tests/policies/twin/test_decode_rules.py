"""Rules of D nodes by hand, for both forms. A step takes 5 ms, a port moves a token a ms, blocks hold 16 tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.errors import TwinError
from policies.policy import ClassPolicy, default_policy
from policies.twin.cluster import Discipline
from policies.twin.itl import bin_of
from policies.twin.outcomes import Replay
from policies.twin.reference.pool import replay_reference
from policies.twin.replay import replay
from policies.twin.workload import Workload
from tests.policies.twin import tiny
from tests.policies.twin.tiny import MS

BY = pytest.mark.parametrize("function", [replay_reference, replay])
LATE = Discipline(chunk_tokens=64, boundary_order="reserve_first", growth_lag=1)


def run(function, load: Workload, discipline: Discipline, decode_blocks: int = 64) -> Replay:
    pool = tiny.cluster(decode_blocks=(decode_blocks,), discipline=discipline)
    known = np.full(load.requests, 16, np.int32)
    return function(pool, tiny.laws(), tiny.POLICY, load, seed=0, estimated_output=known, expected_output=known)


def ms(times_ns: np.ndarray) -> list[float]:
    return np.round(times_ns / MS, 6).tolist()


@BY
def test_shared_prompt_blocks_leave_room_for_another_reservation(function):
    load = tiny.workload((0, 40, 30), (0, 40, 30), (20, 40, 30), pairs=[(0, 0)] * 3, blocks=[[0, 1]] * 3)
    apart = run(function, load, LATE, decode_blocks=8)
    together = run(function, load, replace(LATE, share_prompt_blocks=True), decode_blocks=8)
    assert (together.finished_ns >= 0).all()
    assert together.transfer_started_ns[2] < apart.transfer_started_ns[2]


@BY
def test_blocks_that_d_holds_are_not_sent_again(function):
    """The second prompt's two full blocks are the first one's: 8 of 40 tokens move, one a ms."""
    load = tiny.workload((0, 40, 30), (80, 40, 3), pairs=[(0, 0)] * 2, blocks=[[0, 1]] * 2)
    found = run(function, load, replace(LATE, share_prompt_blocks=True, decode_prefix_reuse=True), decode_blocks=9)
    assert found.sent_tokens.tolist() == [40, 8]
    assert ms(found.transfer_drained_ns - found.transfer_started_ns) == [40, 8]
    again = run(function, load, replace(LATE, share_prompt_blocks=True), decode_blocks=9)
    assert again.sent_tokens.tolist() == [40, 40]


@BY
def test_a_router_sends_a_prompt_where_its_blocks_are(function):
    """Both Ds are alike but for the first prompt's blocks; a transfer of 8 tokens is over sooner."""
    load = tiny.workload((0, 40, 60), (80, 40, 3), pairs=[(0, 1), (-1, -1)], blocks=[[0, 1]] * 2)
    rules = replace(LATE, share_prompt_blocks=True, decode_prefix_reuse=True)
    pool = tiny.cluster(decode_blocks=(64, 64), discipline=rules)
    policy = default_policy([ClassPolicy("any")])
    known = np.full(2, 16, np.int32)
    found = function(pool, tiny.laws(), policy, load, seed=0, estimated_output=known, expected_output=known)
    assert (found.decode_node[1], found.sent_tokens[1]) == (1, 8)


@BY
def test_a_reservation_leaves_blocks_free_unless_nothing_is_used(function):
    load = tiny.workload((0, 32, 10), (0, 32, 10), pairs=[(0, 0)] * 2)
    at_once = run(function, load, Discipline(chunk_tokens=64), decode_blocks=6)
    assert at_once.transfer_started_ns[0] == at_once.transfer_started_ns[1]
    kept = run(function, load, Discipline(chunk_tokens=64, admission_reserve_blocks=4), decode_blocks=6)
    assert kept.transfer_started_ns[0] == at_once.transfer_started_ns[0]
    assert kept.transfer_started_ns[1] == kept.finished_ns[0]


@BY
def test_d_takes_on_what_fits_as_it_was_booked(function):
    """A prompt of two blocks whose answer was booked at one: two fit six blocks, three do not."""
    load = tiny.workload(*[(0, 32, 10)] * 3, pairs=[(0, 0)] * 3)
    by_blocks = run(function, load, Discipline(chunk_tokens=128), decode_blocks=6)
    assert (by_blocks.transfer_started_ns == by_blocks.prefill_finished_ns).all()
    booked = run(function, load, Discipline(chunk_tokens=128, admission="booked"), decode_blocks=6)
    assert (booked.transfer_started_ns[:2] == booked.prefill_finished_ns[:2]).all()
    assert booked.transfer_started_ns[2] == booked.finished_ns[:2].min()


@BY
@pytest.mark.parametrize(("blocks", "preempted"), [(8, [0, 0]), (7, [0, 1]), (6, [1, 0])])
def test_a_sequence_whose_next_stage_does_not_fit_is_preempted(function, blocks: int, preempted: list[int]):
    """Two prompts of two blocks book a block for their answers, and after 16 tokens one more, the older one first."""
    load = tiny.workload(*[(0, 32, 30)] * 2, pairs=[(0, 0)] * 2)
    rules = Discipline(chunk_tokens=128, admission="staged", stage_tokens=16)
    found = run(function, load, rules, decode_blocks=blocks)
    assert found.preemptions.tolist() == preempted
    first, last = sorted(found.finished_ns)
    if sum(preempted):
        # It comes back when the other has ended: its context is computed again, then it makes the 14 other tokens.
        again = round(tiny.laws().prefill.prefill_s("d0", 48, 0.0) * 1000, 6)
        assert ms(np.array([last - first])) == [again + 14 * 5]
    by_blocks = run(function, load, Discipline(chunk_tokens=128), decode_blocks=8)
    assert first == by_blocks.finished_ns.min()


@BY
def test_a_prompt_waits_until_its_first_stage_fits(function):
    load = tiny.workload(*[(0, 32, 10)] * 3, pairs=[(0, 0)] * 3)
    rules = Discipline(chunk_tokens=128, admission="staged", stage_tokens=16)
    found = run(function, load, rules, decode_blocks=6)
    assert (found.transfer_started_ns[:2] == found.prefill_finished_ns[:2]).all()
    assert found.transfer_started_ns[2] == found.finished_ns[:2].min()


@BY
def test_p_makes_the_first_token_and_a_lone_one_never_goes_to_d(function):
    load = tiny.workload((0, 40, 1), (100, 40, 3), pairs=[(0, 0)] * 2)
    result = run(function, load, replace(Discipline(chunk_tokens=64), first_token="prefill"))
    assert result.first_token_ns.tolist() == result.prefill_finished_ns.tolist()
    assert result.finished_ns[0] == result.prefill_finished_ns[0]
    assert result.activated_ns[0] == -1
    # The second answer's gaps: 40 ms of transfer and a step, then a step.
    assert result.itl_counts[0, [bin_of(45 * MS), bin_of(5 * MS)]].tolist() == [1, 1]
    assert ms(result.finished_ns[1:] - result.activated_ns[1:]) == [10.0]


@BY
def test_swapped_out_sequences_come_back_for_the_time_of_their_bytes(function):
    # Two sequences of 2 blocks on 4: the younger makes room when the first context reaches 33.
    load = tiny.workload((0, 30, 20), (0, 30, 20), pairs=[(0, 0)] * 2)
    swap = Discipline(chunk_tokens=64, preemption="swap", swap_gbps=0.008)
    result = run(function, load, swap, decode_blocks=4)
    assert result.counters.preemptions == 1
    assert result.preemptions.tolist() == [0, 1]
    # 32 tokens leave and come back, a token a ms at 8 Mb/s.
    assert result.counters.swapped_tokens == 64
    assert ms(result.finished_ns[:1] - result.activated_ns[:1]) == [20 * 5 + 32]


def test_settings_that_contradict_each_other_are_refused():
    for wrong in (
        {"boundary_order": "reserve_first"},
        {"recompute": "steps"},
        {"growth_lag": 2},
        {"swap_gbps": 0.0},
        {"admission_reserve_blocks": -1},
        {"stage_tokens": 0},
        {"decode_prefix_reuse": True},
    ):
        with pytest.raises(TwinError):
            Discipline(**wrong)  # type: ignore[arg-type]
