"""The plain reference against replays computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from policies.scoring import Decision
from policies.twin.cluster import Discipline, RouterSetup
from policies.twin.outcomes import NOT_YET, Status
from policies.twin.reference import pool as reference
from policies.view import RouterView
from tests.policies.twin import tiny
from tests.policies.twin.tiny import MS


def ms(times_ns: np.ndarray) -> list[float]:
    return np.round(times_ns / MS, 6).tolist()


def test_one_request_walks_its_stages():
    result = tiny.run(tiny.cluster(), tiny.workload((7, 100, 3), pairs=[(0, 0)]), alpha_s=2e-3)
    assert result.status[0] == Status.COMPLETED
    assert ms(result.prefill_started_ns) == [7]
    # 64 tokens: 10 + 6.4; then 36 behind 64: 10 + 3.6 + 2.304.
    assert ms(result.prefill_finished_ns) == [7 + 16.4 + 15.904]
    assert ms(result.transfer_started_ns) == [39.304]
    assert ms(result.transfer_drained_ns) == [139.304]
    assert ms(result.transfer_finished_ns) == [141.304]
    assert ms(result.activated_ns) == [141.304]
    assert ms(result.first_token_ns) == [146.304]
    assert ms(result.finished_ns) == [156.304]
    assert result.counters.prefill_steps == 2
    assert result.counters.decode_steps == 3
    assert np.isnan(result.predicted_ttft_s[0])


def test_output_of_no_tokens_counts_as_one():
    result = tiny.run(tiny.cluster(), tiny.workload((0, 16, 0), pairs=[(0, 0)]))
    assert result.first_token_ns[0] == result.finished_ns[0] != NOT_YET


def test_short_prompts_share_a_step():
    result = tiny.run(tiny.cluster(), tiny.workload((0, 30, 1), (0, 20, 1), (0, 40, 1), pairs=[(0, 0)] * 3))
    # One step of 30 + 20 + 14 tokens, then the last 26 behind 14.
    assert ms(result.prefill_finished_ns) == [16.4, 16.4, pytest.approx(16.4 + 10 + 2.6 + 0.364)]


def test_two_transfers_share_an_ingress_port():
    pool = tiny.cluster(prefill_blocks=(64, 64))
    result = tiny.run(pool, tiny.workload((0, 64, 1), (0, 32, 1), pairs=[(0, 0), (1, 0)]))
    # 32 tokens leave at 13.2, alone for 3.2 ms; then both at half the rate; at the end 64 tokens are alone again.
    assert ms(result.transfer_started_ns) == [16.4, 13.2]
    assert ms(result.transfer_drained_ns) == [109.2, 74.0]
    assert result.counters.shared == 2


def test_a_busy_node_acts_at_its_boundary_only():
    pool = tiny.cluster(prefill_blocks=(64, 64))
    result = tiny.run(pool, tiny.workload((0, 16, 40), (17, 16, 1), pairs=[(0, 0), (1, 0)]))
    # D starts at 27.6 and has a boundary every 5 ms; the second prompt is whole at 28.6, its KV visible at 48.6.
    assert ms(result.activated_ns) == [27.6, 52.6]
    assert ms(result.transfer_started_ns) == [11.6, 32.6]
    assert ms(result.first_token_ns) == [32.6, 57.6]


def test_the_deepest_block_is_evicted_first():
    pool = tiny.cluster(prefill_blocks=(6,))
    blocks = [[0, 1, 2, 3], [4, 5, 6], [0, 1, 2, 3]]
    rows = ((0, 64, 1), (1_000, 48, 1), (2_000, 64, 1))
    result = tiny.run(pool, tiny.workload(*rows, pairs=[(0, 0)] * 3, blocks=blocks))
    # Block 3 makes room for the second prompt, block 6 for the last one's fourth block.
    assert result.cached_tokens.tolist() == [0, 0, 48]
    assert result.counters.evictions == 2
    assert result.counters.hit_blocks == 3


def test_the_last_token_is_always_computed():
    blocks = [[0, 1], [0, 1]]
    result = tiny.run(tiny.cluster(), tiny.workload((0, 32, 1), (500, 32, 1), pairs=[(0, 0)] * 2, blocks=blocks))
    assert result.cached_tokens.tolist() == [0, 16]
    assert ms(result.prefill_finished_ns)[1] == 500 + 10 + 1.6 + 0.256


@pytest.mark.parametrize(("release", "starts_ms"), [("transfer", 80.4), ("activation", 82.4)])
def test_unsent_kv_blocks_the_queue_until_it_is_released(release, starts_ms):
    pool = tiny.cluster(prefill_blocks=(5,), discipline=Discipline(chunk_tokens=64, release=release))
    result = tiny.run(pool, tiny.workload((0, 64, 1), (20, 40, 1), pairs=[(0, 0)] * 2), alpha_s=2e-3)
    assert ms(result.transfer_drained_ns)[0] == 80.4
    assert ms(result.prefill_started_ns) == [0, starts_ms]
    assert result.counters.blocked == 1


def test_the_youngest_sequence_is_preempted_and_pays_its_recompute():
    pool = tiny.cluster(prefill_blocks=(64, 64), decode_blocks=(8,))
    result = tiny.run(pool, tiny.workload((0, 48, 40), (0, 48, 40), pairs=[(0, 0), (1, 0)]))
    start = 14.8 + 96
    # Both need a fifth block after 16 tokens; the second one gets back in when the first has made its 40.
    assert result.preemptions.tolist() == [0, 1]
    assert ms(result.activated_ns) == [start, start]
    assert ms(result.finished_ns) == pytest.approx([start + 200, start + 200 + 16.4 + 24 * 5])
    assert result.counters.preemptions == 1


def test_a_sequence_that_outgrows_an_empty_node_fails_and_the_next_one_runs():
    pool = tiny.cluster(prefill_blocks=(64,), decode_blocks=(4, 64))
    load = tiny.workload((0, 48, 60), (0, 32, 5), pairs=[(-1, -1), (0, 0)])
    result = tiny.run(pool, load)
    assert result.status.tolist() == [Status.FAILED, Status.COMPLETED]
    assert result.finished_ns[0] == NOT_YET
    failed_ms = ms(result.activated_ns)[0] + 16 * 5
    assert ms(result.transfer_started_ns)[1] == failed_ms


def test_what_fits_no_node_is_too_large():
    pool = tiny.cluster(prefill_blocks=(4, 8), decode_blocks=(4, 10))
    rows = ((0, 129, 1), (0, 128, 33), (0, 65, 1), (0, 64, 1), (0, 128, 32))
    pairs = [(-1, -1), (-1, -1), (0, 1), (1, 0), (1, 1)]
    result = tiny.run(pool, tiny.workload(*rows, pairs=pairs))
    assert result.status.tolist() == [Status.TOO_LARGE] * 4 + [Status.COMPLETED]
    assert result.prefill_node.tolist() == [-1, -1, -1, -1, 1]


def test_reservations_per_boundary_bind_a_busy_node_only():
    pool = tiny.cluster(discipline=Discipline(chunk_tokens=64, reservations_per_boundary=1))
    rows = ((0, 16, 200), (40, 16, 1), (40, 16, 1), (40, 16, 1))
    result = tiny.run(pool, tiny.workload(*rows, pairs=[(0, 0)] * 4))
    first_boundary = 57.6  # the first after 40 + 14.8
    assert ms(result.transfer_started_ns)[1:] == [first_boundary, first_boundary + 5, first_boundary + 10]


@pytest.fixture
def views(monkeypatch) -> list[RouterView]:
    """Every view that a router decides on; the decision is always the first pair."""
    seen: list[RouterView] = []

    def decide(_policy, _estimators, view):
        seen.append(view)
        return Decision(0, 0)

    monkeypatch.setattr(reference, "decide", decide)
    return seen


def test_a_booking_on_decode_ends_with_its_lease(views):
    pool = tiny.cluster(routers=RouterSetup(lease_ns=10 * MS))
    load = tiny.workload((0, 64, 1), (9, 16, 1), (10, 16, 1), (11, 16, 1), pairs=[(-1, -1)] * 4)
    result = tiny.run(pool, load)
    assert [view.decode[0].booked_blocks for view in views] == [0, 5, 2, 4]
    assert [view.decode[0].booked_tokens for view in views] == [0, 64, 16, 32]
    assert result.counters.expired == 1


def test_a_booking_on_decode_ends_with_the_reservation(views):
    load = tiny.workload((0, 64, 1), (16, 16, 1), (17, 16, 1), pairs=[(-1, -1)] * 3)
    tiny.run(tiny.cluster(), load)
    assert [view.decode[0].booked_requests for view in views] == [0, 1, 1]
    assert [view.decode[0].inflight_blocks for view in views] == [0, 0, 4]
    assert [view.prefill[0].backlog_tokens for view in views] == [0, 64, 16]


def test_a_sample_is_seen_after_its_delay_and_bookings_fill_the_gap(views):
    pool = tiny.cluster(routers=RouterSetup(period_ns=10 * MS, delay_ns=5 * MS))
    load = tiny.workload((5, 16, 1), (6, 16, 1), (15, 64, 1), (16, 16, 1), (200, 16, 1), pairs=[(-1, -1)] * 5)
    result = tiny.run(pool, load)
    assert [view.prefill[0].age_s for view in views] == [None, 0.006, 0.015, 0.006, 0.01]
    assert views[0].prefill[0].backlog_tokens is None
    assert views[0].decode[0].active_blocks is None
    assert views[0].decode[0].booked_blocks == 0
    # At 6 ms the sample of 0 ms knows nothing of the first; at 16 ms that of 10 ms shows both, and the third is booked.
    assert [view.prefill[0].backlog_tokens for view in views[1:]] == [16, 32, 32 + 64, 0]
    assert [view.prefill[0].backlog_requests for view in views[1:]] == [1, 2, 3, 0]
    assert result.counters.stale == 4


def test_growth_and_release_are_rates_between_samples(views):
    pool = tiny.cluster(routers=RouterSetup(period_ns=100 * MS))
    load = tiny.workload((0, 16, 8), (101, 16, 1), pairs=[(-1, -1)] * 2)
    tiny.run(pool, load)
    assert views[0].decode[0].growth_blocks_per_s is None
    # 8 tokens were made (half a block) and two blocks freed within the first 0.1 s.
    assert views[1].decode[0].growth_blocks_per_s == 5.0
    assert views[1].decode[0].release_blocks_per_s == 20.0


def test_requests_take_routers_in_turn(views):
    pool = tiny.cluster(routers=RouterSetup(count=2))
    tiny.run(pool, tiny.workload(*[(i, 16, 1) for i in range(5)], pairs=[(-1, -1)] * 5))
    assert [view.turn for view in views] == [0, 0, 1, 1, 2]
    # Each router knows its own bookings only.
    assert [view.decode[0].booked_requests for view in views] == [0, 0, 1, 1, 2]
