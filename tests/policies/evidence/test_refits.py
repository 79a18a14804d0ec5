"""The lead over refits of the estimators: its interval carries laws and days, and what they deny is no claim."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.evidence import gates
from policies.evidence.bootstrap import Difference
from policies.evidence.refits import MIN_REFITS, OverRefits, lead_over_refits, over_refits, refits_gate
from policies.policy import ClassPolicy, Policy, default_policy
from policies.search.cases import Case, CaseScore
from policies.search.workers import Task, WorkerPool
from tests.policies.stub import StubFactory

GAIN = Difference(0.03, 0.01, 0.05, 0.0005, 1.0, 40)
EVEN = Difference(0.001, -0.01, 0.012, 0.4, 0.6, 40)
INCUMBENT = default_policy((ClassPolicy("chat"),), family="lmetric")
WINNER = replace(INCUMBENT, family="round_robin")


def score(gain: float, *, day: int = 0, noise: float = 0.02) -> CaseScore:
    """Ten minutes of a day: 0.8 and `gain`, with luck of the blocks that does not depend on the laws."""
    some = StubFactory()(INCUMBENT, Case(f"d{day}"))
    luck = np.random.default_rng(day).normal(0.0, noise, len(some.block_weight)) if gain else 0.0
    value = 50.0 * (0.8 + gain + luck * np.ones(len(some.block_weight)))
    return replace(some, block_value=tuple(value.tolist()))


def judged(gains: list[float], *, noise: float = 0.02) -> OverRefits:
    pairs = [([score(g, day=d, noise=noise) for d in range(3)], [score(0.0, day=d) for d in range(3)]) for g in gains]
    return over_refits(pairs, 30.0, alpha=0.025, seed=1, resamples=2000)


def test_the_mean_over_refits_with_each_of_them() -> None:
    found = judged([0.01 * k for k in range(1, 9)])
    assert [one.value for one in found.each] == pytest.approx([0.01 * k for k in range(1, 9)], abs=0.003)
    assert found.combined.value == pytest.approx(0.045, abs=0.003)
    assert (found.gains, found.enough, found.combined.blocks) == (8, True, 60)


def test_the_interval_carries_both_laws_and_blocks() -> None:
    same, apart = judged([0.04] * 8), judged([0.01, 0.07] * 4)
    quiet = judged([0.01, 0.07] * 4, noise=1e-6)
    # Equal refits leave the blocks' spread as it is under one law; refits that differ add theirs.
    assert (same.combined.low, same.combined.high) == pytest.approx((same.each[0].low, same.each[0].high), abs=1e-12)
    assert apart.combined.low < same.combined.low - 0.02
    assert apart.combined.high > same.combined.high + 0.02
    # Without luck of the blocks only the laws are left: 0.03 around the mean, wider as 8 refits are few.
    assert quiet.combined.low == pytest.approx(0.04 - 1.29 * 0.03, abs=0.001)
    assert quiet.combined.high == pytest.approx(0.04 + 1.29 * 0.03, abs=0.001)


def test_a_refit_alone_and_none_say_nothing() -> None:
    one, none = judged([0.05]), judged([])
    assert (one.combined.low, one.combined.high) == (none.combined.low, none.combined.high) == (-1.0, 1.0)
    assert refits_gate(none, GAIN) == gates.not_run(gates.REFITS)
    few = refits_gate(judged([0.05] * (MIN_REFITS - 1)), GAIN)
    assert (few.status, few.detail) == ("not_run", "7 refits of the estimators, 8 are needed")


@pytest.mark.parametrize(
    ("gains", "lead", "status"),
    [
        ([0.05] * 8, GAIN, "pass"),
        ([0.05] * 6 + [-0.01] * 2, GAIN, "pass"),
        ([0.05] * 5 + [-0.01] * 3, GAIN, "fail"),
        ([0.05] * 5 + [-0.01] * 3, EVEN, "pass"),
        ([-0.05] * 8, EVEN, "fail"),
    ],
)
def test_gate(gains: list[float], lead: Difference, status: str) -> None:
    found = judged(gains)
    gate = refits_gate(found, lead)
    assert gate.status == status
    assert (gate.value, gate.threshold) == (found.combined.value, 0.0)
    assert gate.interval == (found.combined.low, found.combined.high)
    assert gate.numbers["refits"] == 8.0
    assert gate.numbers["gains"] == sum(g > 0 for g in gains)
    assert gate.numbers["refit_8"] == found.each[7].value
    assert f"a gain under {sum(g > 0 for g in gains)}" in gate.detail


class Recording(WorkerPool):
    """What was asked for; a refit lowers the winner's goodput by as many points."""

    asked: list[Task]

    def scores(self, tasks):  # type: ignore[no-untyped-def]
        self.asked = list(tasks)
        for policy, case in tasks:
            lead = (0.1 - 0.01 * case.refit) if policy == WINNER else 0.0
            yield replace(score(lead, day=int(case.day[1:]), noise=1e-6), case=case)


def test_each_refit_replays_both_policies_on_every_day() -> None:
    with Recording(StubFactory(), 1) as pool:
        found = lead_over_refits(
            pool, WINNER, INCUMBENT, ("d1", "d2"), 3, 30.0, alpha=0.025, seed=1, resamples=200
        )  # fmt: skip
        assert [one.value for one in found.each] == pytest.approx([0.09, 0.08, 0.07], abs=1e-5)
        assert {(case.day, case.load, case.refit) for _, case in pool.asked} == {
            (day, 1.0, refit) for day in ("d1", "d2") for refit in (1, 2, 3)
        }
        # Refit by refit: a worker keeps the lowered laws of one refit at a time.
        assert [case.refit for _, case in pool.asked] == sorted(case.refit for _, case in pool.asked)


def test_a_policy_against_itself_is_not_replayed() -> None:
    def same(policy: Policy) -> OverRefits:
        with Recording(StubFactory(), 1) as pool:
            pool.asked = []
            found = lead_over_refits(pool, policy, policy, ("d1",), 8, 30.0, alpha=0.025, seed=1, resamples=200)
            assert pool.asked == []
            return found

    assert refits_gate(same(INCUMBENT), EVEN).status == "pass"
    assert same(INCUMBENT).combined.value == 0.0
