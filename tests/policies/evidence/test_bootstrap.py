"""Statistical sanity of the paired block bootstrap: it keeps its alpha, finds what is there, and is deterministic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.errors import PolicyError
from policies.evidence.bootstrap import (
    Blocks,
    block_length_s,
    difference,
    holm,
    joined_blocks,
)
from policies.policy import ClassPolicy, default_policy
from policies.search.cases import Case
from tests.policies.stub import StubFactory

WEIGHT = 300.0


def pair(seed: int, gain: float, *, blocks: int = 24, memory: float = 0.0) -> tuple[Blocks, Blocks]:
    """Two policies over the same blocks: shared noise, own noise (AR(1) of `memory`), and a planted gain."""
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.5, 1.5, blocks) * WEIGHT
    shared = rng.normal(0, 0.05, blocks)
    own = rng.normal(0, 0.02, (2, blocks))
    for at in range(1, blocks):
        own[:, at] += memory * own[:, at - 1]
    first, second = np.clip(0.85 + shared + own + np.array([[gain], [0.0]]), 0, 1) * weight
    return Blocks(first, weight), Blocks(second, weight)


@pytest.mark.parametrize(("alpha", "blocks"), [(0.025, 24), (0.05, 60)])
def test_equal_policies_are_called_better_about_alpha_of_the_time(alpha: float, blocks: int) -> None:
    runs = 800
    found = [difference(*pair(s, 0.0, blocks=blocks), alpha=alpha, seed=s, resamples=400) for s in range(runs)]
    better = sum(d.p_better <= alpha for d in found) / runs
    worse = sum(d.p_worse <= alpha for d in found) / runs
    slack = 3 * np.sqrt(alpha * (1 - alpha) / runs)
    assert better <= alpha + slack
    assert worse <= alpha + slack
    assert better + worse >= alpha  # it is not simply blind


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    runs, gain = 600, 0.01
    found = [difference(*pair(s, gain), alpha=0.05, seed=s, resamples=400) for s in range(runs)]
    covered = sum(d.low <= gain <= d.high for d in found) / runs
    assert covered == pytest.approx(0.90, abs=0.04)


def test_a_planted_gain_is_found() -> None:
    found = [difference(*pair(s, 0.02), alpha=0.025, seed=s, resamples=400) for s in range(100)]
    assert sum(d.p_better <= 0.025 and d.low > 0 for d in found) >= 75
    assert np.mean([d.value for d in found]) == pytest.approx(0.02, abs=0.002)


def test_a_policy_against_itself_is_exactly_equal() -> None:
    blocks, _ = pair(1, 0.0)
    same = difference(blocks, blocks, alpha=0.025, seed=0)
    assert (same.value, same.low, same.high, same.p_better, same.p_worse) == (0.0, 0.0, 0.0, 1.0, 1.0)


def test_same_seed_same_interval() -> None:
    assert difference(*pair(1, 0.01), alpha=0.025, seed=7) == difference(*pair(1, 0.01), alpha=0.025, seed=7)


def test_better_one_way_is_worse_the_other() -> None:
    first, second = pair(3, 0.03)
    there, back = (difference(a, b, alpha=0.025, seed=1) for a, b in ((first, second), (second, first)))
    assert (there.value, there.low, there.p_better) == pytest.approx((-back.value, -back.high, back.p_worse))


@pytest.mark.parametrize("blocks", [0, 1, 19])
def test_few_blocks_are_not_enough(blocks: int) -> None:
    assert not difference(*pair(1, 0.05, blocks=blocks), alpha=0.025, seed=1).enough


def test_unpaired_blocks_are_refused() -> None:
    first, _ = pair(1, 0.0)
    with pytest.raises(PolicyError, match="paired"):
        difference(first, Blocks(first.value, first.weight + 1), alpha=0.025, seed=1)


@pytest.mark.parametrize(
    ("relaxations", "wanted"), [([], 30), ([2.0], 30), ([6.0], 30), ([6.1], 35), ([20.0], 100), ([1, 8.0, 90], 40)]
)
def test_block_length(relaxations: list[float], wanted: float) -> None:
    assert block_length_s(relaxations) == wanted


def test_blocks_do_not_span_days_and_keep_every_request() -> None:
    policy = default_policy((ClassPolicy("chat"),))
    days = [StubFactory()(policy, Case(day)) for day in ("d1", "d2")]
    joined = joined_blocks(days, 35.0)
    assert len(joined.weight) == 2 * 17  # 600 s a day
    assert joined.weight.sum() == pytest.approx(sum(sum(d.block_weight) for d in days))
    assert joined.goodput_frac == pytest.approx(np.mean([d.goodput_frac for d in days]))
    assert joined_blocks([replace(days[0], block_weight=(0.0,) * 120)], 30.0).goodput_frac == 0.0


def test_holm() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}
