"""The plan of the live test: lengths by rule, and as many blocks as find the effect four times in five."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.evidence.bootstrap import MIN_BLOCKS, Blocks, difference
from policies.evidence.switchback import SwitchbackPlan, switchback

ALPHA = 0.025


def day(seed: int, gain: float, *, blocks: int = 400, traffic: float = 0.04) -> tuple[Blocks, Blocks]:
    """Winner and incumbent over the same blocks: shared noise of the traffic, own noise, a gain."""
    rng = np.random.default_rng(seed)
    weight = np.full(blocks, 300.0)
    shared, own = rng.normal(0.8, traffic, blocks), rng.normal(0, 0.02, (2, blocks))
    return Blocks((shared + own[0] + gain) * weight, weight), Blocks((shared + own[1]) * weight, weight)


def plan(
    gain: float = 0.01, *, relaxation_s: float = 12.0, margin: float = 0.005, traffic: float = 0.04, seed: int = 1
) -> SwitchbackPlan:
    winner, incumbent = day(seed, gain, traffic=traffic)
    lead = difference(winner, incumbent, alpha=ALPHA, seed=0)
    return switchback(
        replace(lead, value=gain),
        [(winner, incumbent)],
        evidence_block_s=60.0,
        relaxations_s=[relaxation_s, 0.5 * relaxation_s, 3 * relaxation_s],
        alpha=ALPHA,
        margin=margin,
        seed=9,
    )


@pytest.mark.parametrize(
    ("relaxation_s", "block_s", "wash_in_s"),
    [(0.0, 60, 5), (1.0, 60, 5), (6.0, 60, 20), (6.1, 120, 20), (12.0, 120, 40), (40, 420, 120)],
)
def test_blocks_are_whole_minutes_of_ten_relaxations(relaxation_s: float, block_s: float, wash_in_s: float) -> None:
    found = plan(relaxation_s=relaxation_s)
    assert (found.relaxation_s, found.block_s, found.wash_in_s) == (relaxation_s, block_s, wash_in_s)
    assert found.block_s >= 5 * relaxation_s


def test_spreads_are_those_of_a_blocks_kept_part() -> None:
    """80 of 120 s are kept, evidence's blocks have 60 s."""
    found = plan()
    shrink = np.sqrt(60 / 80)
    assert found.paired_sd == pytest.approx(0.02 * np.sqrt(2) * shrink, rel=0.1)
    assert found.block_sd == pytest.approx(np.sqrt(2 * (0.02**2 + 0.04**2)) * shrink, rel=0.1)
    assert found.blocks is not None
    assert found.paired_blocks is not None
    assert found.blocks > 3 * found.paired_blocks
    assert found.hours == found.blocks / 30


def test_as_many_blocks_as_planned_find_the_effect_four_times_in_five() -> None:
    found = plan(0.02)
    assert found.blocks is not None
    assert found.block_sd is not None
    pairs = found.blocks // 2
    rng = np.random.default_rng(5)
    seen = rng.normal(found.effect, found.block_sd, (4000, pairs))
    z = seen.mean(axis=1) / (found.block_sd / np.sqrt(pairs))
    assert (z > 1.96).mean() == pytest.approx(0.8, abs=0.03)


def test_a_smaller_effect_needs_more_blocks_and_the_margin_is_the_least() -> None:
    small, large, none = plan(0.01), plan(0.02), plan(-0.02)
    assert small.blocks is not None
    assert large.blocks is not None
    assert small.blocks == pytest.approx(4 * large.blocks, rel=0.1)
    assert (none.effect, small.effect) == (0.005, 0.01)
    assert plan(0.0, margin=0.0).blocks is None
    assert plan(0.0, margin=0.0).order == ""
    assert plan(0.5).blocks == MIN_BLOCKS


def test_the_order_is_drawn_in_pairs_from_the_seed() -> None:
    found = plan()
    assert found.blocks == len(found.order)
    pairs = [found.order[i : i + 2] for i in range(0, len(found.order), 2)]
    assert set(pairs) == {"wi", "iw"}
    assert 0.3 < pairs.count("wi") / len(pairs) < 0.7
    assert found.order == plan().order


def test_two_blocks_say_nothing_of_their_spread() -> None:
    winner, incumbent = day(1, 0.01, blocks=1)
    lead = difference(winner, incumbent, alpha=ALPHA, seed=0)
    found = switchback(
        lead, [(winner, incumbent)], evidence_block_s=30.0, relaxations_s=[], alpha=ALPHA, margin=0.005, seed=1
    )
    assert (found.blocks, found.paired_blocks, found.block_sd, found.paired_sd) == (None, None, None, None)
    assert found.block_s == 60


def test_days_have_no_common_border() -> None:
    """Goodput steps from day to day: neighbours within days are alike."""
    days = [(Blocks(np.full(30, level), np.ones(30)), Blocks(np.full(30, level), np.ones(30))) for level in (0.2, 0.9)]
    lead = difference(days[0][0], days[0][1], alpha=ALPHA, seed=0)
    found = switchback(lead, days, evidence_block_s=30.0, relaxations_s=[1.0], alpha=ALPHA, margin=0.01, seed=1)
    assert found.block_sd == 0.0
    assert found.blocks == MIN_BLOCKS
