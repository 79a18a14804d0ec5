"""The whole table on the stub evaluator: winner, references, gates, verdict and plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from features.errors import PolicyError
from policies.evidence import gates
from policies.evidence.drills import DrillPlan
from policies.evidence.evidence import Evidence, Plan, gather, to_json
from policies.evidence.gates import Gate
from policies.evidence.sweep import SweepPlan
from policies.policy import ClassPolicy, Policy, default_policy
from policies.search.cases import Case
from policies.search.families import Arm, arm, choose_winner, variants
from policies.search.workers import WorkerPool
from tests.policies.stub import StubFactory

PLAN = Plan(
    train_days=("d1", "d2"),
    validation_days=("d3", "d4", "d5"),
    test_days=("d6",),
    seed=1,
    history_days=8,
    resamples=500,
    waivers=(gates.POLICY_REPLAY, gates.DRILLS),
    refits=8,
)
TRAIN = [Case(day, load) for day in PLAN.train_days for load in (1.0, 1.15)]
FIDELITY = Gate(gates.FORCED_PLACEMENT, "pass", "fine", 0.4, 1.0)


def default() -> Policy:
    return default_policy((ClassPolicy("chat"),))


def tuned() -> Policy:
    return replace(default(), classes=(ClassPolicy("chat", weights=(1, 1, 1, 1, 0, 5.0, 1)),))


def night(
    by_family: Mapping[str, float],
    plan: Plan = PLAN,
    *,
    refit_gain: float = 0.0,
    winner: str | None = None,
    workers: int = 1,
    fidelity: Gate = FIDELITY,
    by_drill: Mapping[str, float] | None = None,
) -> Evidence:
    incumbent = replace(default(), family="lmetric")
    factory = StubFactory(by_family=by_family, own_noise=0.01, by_drill=by_drill or {}, refit_gain=refit_gain)
    with WorkerPool(factory, workers) as pool:
        named = {"incumbent": incumbent, "default": default(), "searched": tuned()}
        arms: list[Arm] = [
            arm(n, p, s) for (n, p), s in zip(named.items(), pool.by_policy(list(named.values()), TRAIN), strict=True)
        ]
        simple = {n: p for family in ("lmetric", "round_robin") for n, p in variants(family, default(), 2).items()}
        arms[2:2] = [
            arm(n, p, s) for (n, p), s in zip(simple.items(), pool.by_policy(list(simple.values()), TRAIN), strict=True)
        ]
        return gather(
            pool,
            arms,
            winner=winner or choose_winner(arms).name,
            incumbent="incumbent",
            default="default",
            plan=plan,
            gates=[fidelity],
            search={"trials": 24},
        )


def test_a_real_gain_is_better_and_may_become_current() -> None:
    found = night({"routecal": 0.93, "lmetric": 0.85})
    assert (found.winner, found.verdict, found.promotion_cap) == ("searched", "better", "current")
    assert found.difference_to_incumbent.low > 0.05
    assert found.difference_to_default.value == pytest.approx(0.032, abs=0.01)
    assert found.optimism.test_gain == pytest.approx(0.08, abs=0.03)
    assert [row.name for row in found.arms] == [
        "incumbent",
        "default",
        "lmetric",
        "lmetric/prefill_first",
        "lmetric/decode_first",
        "round_robin",
        "searched",
    ]
    row = found.arms[-1]
    assert row.roles == ("winner",)
    assert row.requests == 18000
    assert row.load_carried is not None
    assert row.load_carried.load == pytest.approx(1.06, abs=0.02)
    assert found.block_s == 30.0
    assert found.difference_to_incumbent.blocks == 60


def test_no_gain_is_not_distinguishable() -> None:
    flat = {"routecal": 0.90, "lmetric": 0.90}
    found = night(flat, winner="searched")
    assert found.verdict == "not distinguishable"
    assert found.difference_to_incumbent.low <= 0 <= found.difference_to_incumbent.high
    assert night(flat).winner != "searched"


def test_a_loss_is_worse() -> None:
    found = night({"routecal": 0.80, "lmetric": 0.90}, winner="searched")
    assert (found.verdict, found.promotion_cap) == ("worse", "none")


def test_without_waivers_the_cap_is_shadow() -> None:
    found = night({"routecal": 0.93, "lmetric": 0.85}, replace(PLAN, waivers=()))
    assert (found.verdict, found.promotion_cap) == ("better", "shadow")


def test_a_gain_that_hangs_on_the_fit_is_no_finding() -> None:
    leads = {"routecal": 0.93, "lmetric": 0.85}
    gate = next(g for g in night(leads).gates if g.name == gates.REFITS)
    assert (gate.status, gate.numbers["gains"]) == ("pass", 8.0)
    assert gate.value == pytest.approx(0.08, abs=0.01)
    # Refits 1 to 8 take up to 0.1 from the searched family: under all but two it loses.
    lost = night(leads, refit_gain=-0.04)
    assert next(g for g in lost.gates if g.name == gates.REFITS).status == "fail"
    assert (lost.verdict, lost.promotion_cap) == ("not trustworthy", "none")
    doubtful = night(leads, refit_gain=-0.012)
    assert next(g for g in doubtful.gates if g.name == gates.REFITS).status == "pass"
    assert doubtful.verdict == "not distinguishable"
    assert "over refits" in doubtful.reasons[0]


def test_without_refits_their_gate_is_not_run() -> None:
    found = night({"routecal": 0.93, "lmetric": 0.85}, replace(PLAN, refits=0, sweep=None))
    gate = next(g for g in found.gates if g.name == gates.REFITS)
    assert (gate.status, gate.detail) == ("not_run", "the estimators were not fitted again")
    assert (found.verdict, found.promotion_cap) == ("better", "shadow")


def test_a_twin_that_fails_its_fidelity_is_not_trusted() -> None:
    found = night({"routecal": 0.93, "lmetric": 0.85}, fidelity=Gate(gates.FORCED_PLACEMENT, "fail", "off by half"))
    assert found.verdict == "not trustworthy"


def test_a_winner_that_fails_a_drill_is_not_trusted() -> None:
    plan = replace(PLAN, sweep=None, drills=DrillPlan(("burst", "decode_failure"), {"load": "not now"}))
    by_family = {"routecal": 0.93, "lmetric": 0.85}
    held = night(by_family, plan, by_drill={"burst": 0.05, "decode_failure": 0.09})
    drills = next(g for g in held.gates if g.name == gates.DRILLS)
    assert (held.verdict, drills.status) == ("better", "pass")
    assert drills.numbers["burst.value"] == pytest.approx(0.03, abs=0.01)
    failed = night(by_family, plan, by_drill={"decode_failure": 0.2})
    assert failed.verdict == "not trustworthy"
    assert "the worst is decode_failure" in failed.reasons[0]
    assert "load was left out: not now" in failed.reasons[0]


def test_without_a_test_day_the_gate_is_not_run() -> None:
    found = night({"routecal": 0.93, "lmetric": 0.85}, replace(PLAN, test_days=(), sweep=None))
    assert next(g for g in found.gates if g.name == gates.TEST_DAY).status == "not_run"
    assert (found.verdict, found.promotion_cap) == ("better", "shadow")
    assert found.arms[0].load_carried is None
    assert found.optimism.optimism is None


def test_one_validation_day_of_ten_minutes_is_just_enough() -> None:
    one = replace(PLAN, validation_days=("d3",), sweep=None)
    assert night({"routecal": 0.93, "lmetric": 0.85}, one).difference_to_incumbent.blocks == 20


def test_same_evidence_again_and_on_two_workers_and_as_json() -> None:
    plan = replace(PLAN, sweep=SweepPlan(halvings=0))
    first = to_json(night({"routecal": 0.93, "lmetric": 0.85}, plan))
    assert first == to_json(night({"routecal": 0.93, "lmetric": 0.85}, plan, workers=2))
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    assert first["arms"][0]["ttft_ms"]["p99"] == 500.0
    assert first["gates"][0]["name"] == gates.FORCED_PLACEMENT


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_json_refuses_what_it_cannot_say(value: object) -> None:
    with pytest.raises(PolicyError, match="evidence holds"):
        to_json({"x": [value]})


def test_days_may_not_serve_twice() -> None:
    with pytest.raises(PolicyError, match="share no day"):
        replace(PLAN, test_days=("d1",))


def test_a_name_that_is_no_arm_is_refused() -> None:
    with pytest.raises(PolicyError, match="among them"):
        night({"routecal": 0.9}, winner="nobody")
