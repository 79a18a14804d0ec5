"""The explanation on a small real twin of two racks: every replay is counted, effects mean what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from policies.evidence.drills import DrillPlan
from policies.evidence.evidence import Evidence, Plan, gather, gather_replays, to_json
from policies.evidence.explain import Explanation
from policies.evidence.sweep import SweepPlan, most_loads
from policies.policy import Policy
from policies.search.cases import Case, CaseScore
from policies.search.detail import Detail
from policies.search.families import arm
from policies.search.replay import ReplayFactory, save_workloads
from policies.search.workers import Task, WorkerPool
from policies.twin.cluster import Cluster, Node, Uplink
from tests.policies import world
from tests.policies.search.test_replay import LAWS, default

DAYS = ("d2", "d3")


def cluster() -> Cluster:
    """A rack each of one P and one D; the way between them is narrow."""
    return replace(
        world.cluster(),
        prefill=(Node("p0", "a", 1000, 100.0), Node("p1", "b", 1000, 100.0)),
        decode=(Node("d0", "a", 1000, 100.0), Node("d1", "b", 1000, 100.0)),
        uplinks=(Uplink("a", "b", 1.0), Uplink("b", "a", 1.0)),
        kv_bytes_per_token=100_000,
    )


class Counted(WorkerPool):
    """Counts replays."""

    done = 0

    def scores(self, tasks: Sequence[Task]) -> Iterator[CaseScore]:
        for score in super().scores(tasks):
            self.done += 1
            yield score

    def details(self, tasks: Sequence[Task]) -> Iterator[Detail]:
        for seen in super().details(tasks):
            self.done += 1
            yield seen


def without(policy: Policy, place: int) -> Policy:
    def cut(weights: tuple[float, ...]) -> tuple[float, ...]:
        return (*weights[:place], 0.0, *weights[place + 1 :])

    return replace(policy, classes=tuple(replace(c, weights=cut(c.weights)) for c in policy.classes))


def night(folder: Path, *, winner: str = "searched", workers: int = 1, explained: bool = True) -> tuple[Evidence, int]:
    """The default wins against round_robin; `searched` is the default with a temperature and without SloRisk."""
    folder.mkdir(exist_ok=True)
    save_workloads(folder, {f"d{seed}": world.workload(400, rate_per_s=7.0, seed=seed) for seed in (1, 2, 3)})
    plan = Plan(("d1",), DAYS, (), seed=1, history_days=8, resamples=200, sweep=None, explained=explained)
    return gathered(folder, plan, winner, workers)[:2]


def gathered(folder: Path, plan: Plan, winner: str, workers: int = 1, refits: int = 0) -> tuple[Evidence, int, int]:
    """The evidence, the replays that it took, and how many it takes at most."""
    named = {
        "incumbent": replace(default(), family="round_robin"),
        "default": default(),
        "searched": replace(without(default(), 5), temperature_p_s=0.001),
    }
    laws = replace(LAWS, transfer=replace(LAWS.transfer, alpha_s={"local": 0.001, "cross": 0.001}))
    again = ((laws, None),) * refits
    with Counted(ReplayFactory(folder, cluster(), laws, world.GOAL, seed=3, refits=again), workers) as pool:
        scores = pool.by_policy(list(named.values()), [Case("d1")])
        arms = [arm(n, p, s) for (n, p), s in zip(named.items(), scores, strict=True)]
        pool.done = 0
        found = gather(pool, arms, winner=winner, incumbent="incumbent", default="default", plan=plan)
        most = gather_replays(arms, winner=winner, incumbent="incumbent", default="default", plan=plan)
        return found, pool.done, most


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, int]:
    return night(tmp_path_factory.mktemp("twin"))


@pytest.fixture(scope="module")
def found(told: tuple[Evidence, int]) -> Explanation:
    explanation = told[0].explanation
    assert explanation is not None
    return explanation


def test_every_replay_is_counted(told: tuple[Evidence, int], found: Explanation) -> None:
    arms, days = 3, 2
    assert found.replays == (len(found.ladder) + len(found.ablation) + len(found.sensitivity) + 3 * arms) * days
    assert told[1] == arms * days + found.replays


@pytest.mark.parametrize("winner", ["searched", "incumbent"])
def test_the_replays_of_a_night_are_known_before(tmp_path: Path, winner: str) -> None:
    save_workloads(tmp_path, {f"d{seed}": world.workload(120, rate_per_s=7.0, seed=seed) for seed in (1, 2, 3, 4)})
    drills = DrillPlan(("burst", "slow_link"))
    plan = Plan(
        ("d1",),
        DAYS,
        ("d4",),
        seed=1,
        history_days=8,
        resamples=200,
        sweep=None,
        explained=True,
        drills=drills,
        refits=2,
    )
    _, done, most = gathered(tmp_path, plan, winner, refits=2)
    assert done == most
    swept, done, most = gathered(tmp_path, replace(plan, sweep=SweepPlan()), winner, refits=2)
    loads = [sum(load != 1.0 for load, _ in row.load_carried.curve) for row in swept.arms if row.load_carried]
    assert done == most - sum(most_loads(SweepPlan()) - asked for asked in loads) * len(DAYS)


def test_the_ladder_ends_at_the_joint_score(told: tuple[Evidence, int], found: Explanation) -> None:
    names = ["utilisation", "guard", "bookings", "request size", "service load", "locality and transfer", "joint pair"]
    assert [rung.name for rung in found.ladder] == names
    assert found.ladder[-1].goodput_frac == next(row.goodput_frac for row in told[0].arms if row.name == "searched")
    assert found.ladder[0].gain is None
    for below, rung in pairwise(found.ladder):
        assert rung.gain is not None
        assert rung.gain.value == pytest.approx(rung.goodput_frac - below.goodput_frac)


def test_effects_are_of_what_is_on_or_differs(found: Explanation) -> None:
    assert [(e.name, e.kind) for e in found.ablation] == [
        ("PrefillWait", "off"),
        ("PrefillCompute", "off"),
        ("TransferTime", "off"),
        ("DecodeWait", "off"),
        ("SloRisk", "default"),
        ("PrefixBenefit", "off"),
        ("temperature_p_s", "default"),
    ]
    assert [e.kind for e in found.sensitivity] == ["half", "double"] * 5


def test_an_effect_is_the_paired_difference_to_the_winner(told: tuple[Evidence, int], found: Explanation) -> None:
    winner = next(row for row in told[0].arms if row.name == "searched")
    for effect in (*found.ablation, *found.sensitivity):
        assert effect.difference.value == pytest.approx(effect.goodput_frac - winner.goodput_frac)
        assert effect.difference.low <= effect.difference.value <= effect.difference.high
    # Nothing is cached here: without its prefix term the policy is the same.
    same = next(e for e in found.ablation if e.name == "PrefixBenefit")
    assert (same.difference.value, same.difference.low, same.difference.high) == (0.0, 0.0, 0.0)
    assert next(e for e in found.ablation if e.name == "PrefillWait").difference.value < 0


def test_loads_are_of_all_roles_and_fall(told: tuple[Evidence, int], found: Explanation) -> None:
    assert [points.arm for points in found.loads] == ["searched", "incumbent", "default"]
    for points in found.loads:
        (low, at_low), (one, at_one), (high, at_high) = points.goodput_frac
        assert (low, one, high) == (0.9, 1.0, 1.1)
        assert at_one == next(row.goodput_frac for row in told[0].arms if row.name == points.arm)
        assert at_low > at_high


def test_regret_is_least_where_the_score_is_the_bound(found: Explanation) -> None:
    rows = {(row.arm, row.slo_class): row for row in found.regret}
    assert len(rows) == 3 * 2
    assert sum(row.decisions for (name, _), row in rows.items() if name == "default") == 800
    for slo_class in ("chat", "batch"):
        ours, theirs = rows["default", slo_class].ttft_s, rows["incumbent", slo_class].ttft_s
        assert ours is not None
        assert theirs is not None
        assert 0 <= ours < 0.2 * theirs


def test_flows_show_who_crosses_the_uplink(told: tuple[Evidence, int], found: Explanation) -> None:
    flows = {flow.arm: flow for flow in found.flows}
    turns = flows["incumbent"]
    assert turns.flips_frac == 0.0
    assert turns.crossed_frac == pytest.approx(0.5, abs=0.02)
    assert sum(c.requests for c in turns.crossings) == turns.requests == 800
    assert flows["searched"].crossed_frac is not None
    assert flows["searched"].crossed_frac < 0.4
    assert flows["searched"].flips_frac > 0.3
    rows = {row.name: row for row in told[0].arms}
    for name, flow in flows.items():
        assert flow.transferred_bytes == rows[name].transferred_bytes
        assert flow.reused_tokens == rows[name].reused_tokens
        assert sum(flow.decode_share.values()) == pytest.approx(1.0)


def test_slices_and_live_test_are_against_the_incumbent(told: tuple[Evidence, int], found: Explanation) -> None:
    assert found.slices is not None
    assert found.slices.gains
    assert all(s.requests >= 50 for s in (*found.slices.gains, *found.slices.losses))
    assert found.switchback is not None
    assert found.switchback.effect == max(told[0].difference_to_incumbent.value, 0.005)
    assert found.switchback.block_s % 60 == 0


def test_the_incumbent_as_winner_needs_no_live_test(tmp_path: Path) -> None:
    evidence, _ = night(tmp_path / "w", winner="incumbent")
    explanation = evidence.explanation
    assert explanation is not None
    assert (explanation.slices, explanation.switchback, explanation.sensitivity) == (None, None, ())
    assert [flow.arm for flow in explanation.flows] == ["incumbent", "default"]
    assert explanation.ablation == ()


def test_it_is_plain_json_and_the_same_on_two_workers(told: tuple[Evidence, int], tmp_path: Path) -> None:
    plain = to_json(told[0])
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain == to_json(night(tmp_path / "w", workers=2)[0])


def test_a_plan_that_does_not_ask_replays_nothing_more(tmp_path: Path) -> None:
    evidence, done = night(tmp_path / "w", explained=False)
    assert evidence.explanation is None
    assert done == 6
