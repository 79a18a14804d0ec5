"""Flows of an arm by hand: crossings, shares, herding, flips and regret."""

from __future__ import annotations

import numpy as np
import pytest

from policies.evidence.flows import BINS, PROMPT_EDGES, ClassRegret, FlowSums, autocorrelations, prompt_bin
from policies.search.detail import Detail
from tests.policies.evidence.details import detail


def flow_of(*days: tuple[Detail, Detail]) -> FlowSums:
    sums = FlowSums("arm")
    for mine, incumbents in days:
        sums.add(mine, incumbents)
    return sums


def test_prompts_cross_racks_by_their_size() -> None:
    sizes = np.array([100, 511, 512, 9000, 9000, 40_000, 40_000], np.int32)
    mine = detail([0, 0, 0, 1, 1, 0, -1], [0, 1, 0, 0, 1, 1, 1], prompt_tokens=sizes)
    found = flow_of((mine, mine)).flow()
    assert [(c.prompt_tokens, c.requests, c.crossed_frac) for c in found.crossings] == [
        ("< 512", 2, 0.5),
        ("512 – 2,047", 1, 0.0),
        ("2,048 – 8,191", 0, None),
        ("8,192 – 32,767", 2, 0.5),
        ("≥ 32,768", 1, 1.0),
    ]
    assert (found.requests, found.crossed_frac) == (6, 0.5)
    assert found.prefill_share == {"p0": pytest.approx(4 / 6), "p1": pytest.approx(2 / 6)}
    assert found.decode_share == {"d0": 0.5, "d1": 0.5}


def test_bins_begin_at_their_edges() -> None:
    assert len(BINS) == len(PROMPT_EDGES) + 1
    assert prompt_bin(np.array([1, 511, 512, 2048, 32_767, 32_768], np.int32)).tolist() == [0, 0, 1, 2, 3, 4]


def test_flips_are_of_either_node_and_days_add_up() -> None:
    theirs = detail([0, 0, 1, 1], [0, 0, 1, 1])
    mine = detail([0, 1, 1, 1], [0, 0, 0, 1], above_high_water_frac=0.75)
    assert flow_of((mine, theirs)).flow().flips_frac == 0.5
    both = flow_of((mine, theirs), (theirs, theirs)).flow()
    assert both.flips_frac == 0.25
    assert both.requests == 8
    assert both.above_high_water_frac == 0.5
    assert (both.reused_tokens, both.transferred_bytes) == (2000, 2 * 10**12)


def test_herding_shows_in_the_shares_from_block_to_block() -> None:
    block = np.repeat(np.arange(40), 5)
    in_turns = np.where(block % 2 == 0, 0, 1).astype(np.int32)
    lasting = np.where(block % 20 < 10, 0, 1).astype(np.int32)
    spread = np.random.default_rng(1).integers(0, 2, 200).astype(np.int32)
    steady = np.tile([0, 1, 0, 1, 1], 40).astype(np.int32)
    assert autocorrelations(in_turns, block, 2) == pytest.approx([-39 / 40] * 2)
    assert autocorrelations(lasting, block, 2) == pytest.approx([33 / 40] * 2)
    assert all(abs(a) < 0.3 for a in autocorrelations(spread, block, 2))
    assert autocorrelations(steady, block, 2) == []
    assert autocorrelations(steady[:0], block[:0], 2) == []


def test_an_empty_block_parts_its_neighbours() -> None:
    block = np.repeat(np.arange(0, 20, 2), 4)
    node = np.where(block % 10 == 0, 1, 0).astype(np.int32)
    assert autocorrelations(node, block, 2) == [0.0, 0.0]


def test_blocks_are_five_seconds_of_arrivals() -> None:
    """Ten requests on p0, ten on p1, one a second: two blocks of each."""
    turns = [0] * 10 + [1] * 10
    found = flow_of((detail(turns, turns), detail(turns, turns))).flow()
    assert found.prefill_autocorrelation == pytest.approx(1 / 4)
    assert found.decode_autocorrelation == pytest.approx(1 / 4)


def test_regret_is_a_mean_over_the_measured_decisions_of_a_class() -> None:
    one = detail(
        [0, 0], [0, 0], regret_class=np.array([0, 0, 1], np.int32), regret_ttft_s=np.array([0.1, np.nan, 0.4]),
        regret_missed=np.array([True, False, False]),
    )  # fmt: skip
    two = detail(
        [0, 0], [0, 0], regret_class=np.array([0], np.int32), regret_ttft_s=np.array([0.3]),
        regret_missed=np.array([False]),
    )  # fmt: skip
    assert flow_of((one, one), (two, two)).regret() == (
        ClassRegret("arm", "chat", 2, pytest.approx(0.2), 0.5),
        ClassRegret("arm", "batch", 1, 0.4, 0.0),
    )
    assert flow_of((two, two)).regret()[1] == ClassRegret("arm", "batch", 0, None, None)


def test_a_day_on_which_nothing_was_placed() -> None:
    none = detail([-1, -1], [-1, -1])
    found = flow_of((none, none)).flow()
    assert (found.requests, found.crossed_frac, found.prefill_autocorrelation) == (0, None, None)
    assert found.prefill_share == {"p0": 0.0, "p1": 0.0}
