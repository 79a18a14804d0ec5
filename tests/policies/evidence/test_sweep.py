"""The load carried: exact on a straight line, bounded where the curve never crosses, all arms in step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from features.errors import PolicyError
from policies.evidence.sweep import SweepPlan, most_loads, sweep_all


@pytest.mark.parametrize("crossing", [0.62, 0.97, 1.0, 1.04, 1.31])
def test_a_straight_line_is_met_exactly(crossing: float) -> None:
    found = sweep_all(["a"], SweepPlan(), lambda asked: [0.9 + 0.5 * (crossing - load) for _, load in asked])["a"]
    assert found.bound == "exact"
    assert found.load == pytest.approx(crossing)


def test_a_curve_that_never_crosses_gives_a_bound() -> None:
    never = sweep_all(["a"], SweepPlan(high=1.2), lambda asked: [0.95 for _ in asked])["a"]
    always = sweep_all(["a"], SweepPlan(low=0.8), lambda asked: [0.2 for _ in asked])["a"]
    assert (never.load, never.bound) == (1.2, "at_least")
    assert (always.load, always.bound) == (0.8, "at_most")
    assert [load for load, _ in never.curve] == pytest.approx([1.0, 1.1, 1.2])


@pytest.mark.parametrize(
    "plan",
    [SweepPlan(), SweepPlan(halvings=3), SweepPlan(step=0.03), SweepPlan(start=0.8), SweepPlan(low=1.0, high=1.0)],
)
def test_no_sweep_asks_for_more_loads_than_told(plan: SweepPlan) -> None:
    asked: list[int] = []
    for crossing in [at / 200 for at in range(60, 540)]:
        curve = sweep_all(["a"], plan, lambda asked, at=crossing: [0.9 + 0.1 * (at - load) for _, load in asked])["a"]
        asked.append(sum(load != 1.0 for load, _ in curve.curve))
    assert max(asked) == most_loads(plan)


def test_arms_are_swept_in_step() -> None:
    rounds: list[list[str]] = []
    knee = {"simple": 0.98, "joint": 1.25}

    def goodput(asked: Sequence[tuple[str, float]]) -> list[float]:
        rounds.append([name for name, _ in asked])
        return [0.9 + (knee[name] - load) for name, load in asked]

    found = sweep_all(list(knee), SweepPlan(), goodput)
    assert {name: f.load for name, f in found.items()} == pytest.approx(knee)
    assert rounds[0] == ["simple", "joint"]
    assert len(rounds) == 5  # joint: 1.0, 1.1, 1.3, then the middle of 1.1 and 1.3, then the middle of its half


def test_a_cliff_is_bracketed() -> None:
    found = sweep_all(["a"], SweepPlan(), lambda asked: [0.99 if load < 1.13 else 0.1 for _, load in asked])["a"]
    assert 1.1 < found.load < 1.15


def test_far_crossings_need_few_loads() -> None:
    found = sweep_all(["a"], SweepPlan(high=2.6), lambda asked: [0.9 + 0.2 * (2.03 - load) for _, load in asked])["a"]
    assert found.load == pytest.approx(2.03)
    assert len(found.curve) <= 9


def test_a_plan_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(PolicyError, match="low <= start"):
        SweepPlan(low=1.2)
