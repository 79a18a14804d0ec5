"""Evidence by hand: three arms whose cells are easy to read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipelines.night.policy import evidence_json
from policies.evidence.arms import ArmRow
from policies.evidence.bootstrap import Difference
from policies.evidence.changes import Effect, Kind
from policies.evidence.evidence import Evidence, Optimism
from policies.evidence.explain import Explanation, LoadPoints
from policies.evidence.flows import ClassRegret, Crossing, Flow
from policies.evidence.gates import FORCED_PLACEMENT, VALIDATION, Gate, complete
from policies.evidence.ladder import Rung
from policies.evidence.slices import Slice, Slices
from policies.evidence.sweep import LoadCarried
from policies.evidence.switchback import SwitchbackPlan
from policies.objective import Quantiles

LEAD = Difference(0.012, 0.004, 0.021, 0.001, 0.999, 40)
NONE = Difference(0.0, 0.0, 0.0, 1.0, 1.0, 40)

ARM = ArmRow(
    name="incumbent",
    family="gated_utilisation",
    same_rack="prefill_first",
    roles=("incumbent",),
    train_soft_frac=0.82,
    train_goodput_frac=0.90,
    goodput_frac=0.905,
    goodput_frac_by_class={"long": 0.85, "short": 0.93},
    test_goodput_frac=0.89,
    load_carried=LoadCarried(0.9, 1.012, "exact", ((1.0, 0.905), (1.1, 0.81))),
    ttft_ms=Quantiles(412.0, 900.0, 1310.4),
    tpot_ms=Quantiles(21.04, 30.0, 38.16),
    requests=30_000,
    rejected=1_204,
    failed=0,
    preemptions=3,
    reused_tokens=41_250_000,
    transferred_bytes=8_125_000_000_000,
    output_tokens_per_s=5_000.0,
    against_incumbent=NONE,
    against_default=replace(LEAD, value=-0.012, low=-0.021, high=-0.004),
    p_holm=None,
)


def arms() -> tuple[ArmRow, ...]:
    """Incumbent, default and a simple rule with a rack variant; the default is the winner."""
    return (
        ARM,
        replace(
            ARM,
            name="default",
            family="routecal",
            same_rack="none",
            roles=("winner", "default"),
            goodput_frac=0.917,
            load_carried=LoadCarried(0.9, 1.8, "at_least", ((1.0, 0.917), (1.8, 0.91))),
            against_incumbent=LEAD,
            against_default=NONE,
            p_holm=0.002,
        ),
        replace(
            ARM,
            name="lmetric/decode_first",
            family="lmetric",
            same_rack="decode_first",
            roles=(),
            goodput_frac=0.871,
            load_carried=None,
            ttft_ms=Quantiles(None, None, None),
            against_incumbent=replace(LEAD, value=-0.034, low=-0.05, high=-0.01),
            against_default=replace(LEAD, value=-0.046, low=-0.06, high=-0.02),
            p_holm=1.0,
        ),
    )


def explanation() -> Explanation:
    """The default taken apart: fourteen changes, two weights around it, a loss, two gains, two arms' flows."""

    def effect(name: str, kind: Kind, value: float) -> Effect:
        return Effect(name, kind, "1", "0", 0.917 + value, replace(LEAD, value=value, low=value - 0.004, high=value))

    def flow(arm: str, crossed: float, flips: float) -> Flow:
        sizes = (Crossing("< 512", 900, crossed), Crossing("512 – 2,047", 0, None))
        shares = {"p0/dp0": 0.25, "p1/dp0": 0.75}
        return Flow(arm, 900, crossed, sizes, shares, shares, -0.5, None, 0.85, 0.125, flips, 41_000, 8_125_000_000)

    def piece(where: str, difference: float) -> Slice:
        return Slice(where, 1_250, 0.9 + difference, 0.9, difference)

    return Explanation(
        ladder=(
            Rung("guard", (), 0.85, None),
            Rung("bookings", ("PrefillWait",), 0.87, replace(LEAD, value=0.02)),
            Rung("joint pair", ("PrefillWait", "SloRisk"), 0.917, replace(LEAD, value=0.047)),
        ),
        ablation=(
            effect("DecodeWait", "off", -0.031),
            effect("draws_p", "default", 0.002),
            *(effect(f"knob {at}", "default", 1e-4 * at) for at in range(1, 13)),
        ),
        sensitivity=(
            effect("DecodeWait", "half", -0.003),
            effect("DecodeWait", "double", -0.04),
            effect("SloRisk", "half", 0.0),
            effect("SloRisk", "double", 0.001),
        ),
        loads=(LoadPoints("default", ((0.9, 0.95), (1.0, 0.917), (1.1, 0.83))),),
        regret=(ClassRegret("default", "short", 1_800, 0.0125, 0.02), ClassRegret("default", "long", 0, None, None)),
        slices=Slices(
            31,
            (piece("short, prompt < 512 tokens, last third", -0.125),),
            (piece("long, prompt ≥ 32,768 tokens, first third", 0.2), piece("D in rack b", 0.05)),
        ),
        flows=(flow("default", 0.125, 0.375), flow("incumbent", 0.5, 0.0)),
        switchback=SwitchbackPlan(
            12.0, 120.0, 40.0, 0.012, 0.025, 0.8, 0.05, 0.02, 546, 88, 18.2, 7, "wi" * 273, "Blocks are independent."
        ),
        replays=96,
    )


def searches() -> dict[str, Any]:
    """Reports of two searches: the joint score's with a front of two, a rule's with a front of one."""

    def report(trials: int, chosen: int, front: list[tuple[int, float, float]]) -> dict[str, Any]:
        names = ("trial", "goodput_frac", "ttft_p99_ms", "moved_bytes")
        return {
            "trials": trials,
            "given_up": trials // 4,
            "stopped": "budget used up",
            "default_soft_frac": 0.8,
            "best_soft_frac": 0.85,
            "chosen_soft_frac": 0.84,
            "chosen_trial": chosen,
            "chosen_point": {"SloRisk": 1.5},
            "distance_from_default": 0.7,
            "touched_bounds": [],
            "front": [dict(zip(names, (*point, 1e12), strict=True)) for point in front],
        }

    return {
        "searched": report(8, 5, [(5, 0.93, 1_300.0), (2, 0.91, 1_100.0)]),
        "lmetric/decode_first": report(4, 0, [(0, 0.88, 1_500.0)]),
    }


def evidence(*, forced: str = "pass") -> dict[str, Any]:
    """As a policy file carries it."""
    told = "worst of 2 classes: ttft_p99 of class long is off by +12.0%, limit 20%, interval [+4.0%, +19.0%]"
    gates = [
        Gate(FORCED_PLACEMENT, forced, told, 0.6, 1.0, (0.2, 0.95)),  # type: ignore[arg-type]
        Gate(VALIDATION, "pass", "goodput differs", 0.012, 0.0, (0.004, 0.021)),
    ]
    return evidence_json(
        Evidence(
            verdict="better" if forced == "pass" else "not trustworthy",
            promotion_cap="shadow" if forced == "pass" else "none",
            reasons=("On the validation days goodput is higher than the incumbent's.",),
            gates=complete(gates, ("policy_replay",)),
            winner="default",
            incumbent="incumbent",
            default="default",
            difference_to_incumbent=LEAD,
            difference_to_default=NONE,
            test_difference_to_incumbent=LEAD,
            optimism=Optimism(0.93, 0.917, 0.91, 0.03, 0.012, 0.02, 0.02, 0.01),
            arms=arms(),
            train_days=("2026-11-01", "2026-11-02"),
            validation_days=("2026-11-03",),
            test_days=("2026-11-04",),
            block_s=30.0,
            relaxation_s={"2026-11-03": 4.0},
            alpha=0.025,
            margin=0.005,
            search={"frozen": {"SloRisk": "no target"}, "searches": searches()},
            explanation=explanation(),
        )
    )


def fitted() -> dict[str, Any]:
    """Errors as `pipelines.night.stored.plain_fitted` keeps them, as far as figures and metrics use them."""

    def score(name: str, level: float, covered: float) -> dict[str, Any]:
        cover = {"count": 900, "covered_frac": covered, "low_frac": covered - 0.02, "high_frac": covered + 0.02}
        return {"slo_class": name, "level": level, "rows": 900, "coverage": cover}

    def cell(node: str, size: int, off: float) -> dict[str, Any]:
        return {"node": node, "size_from": size, "context_from": 0, "steps": 200, "error": ape(off)}

    def ape(off: float) -> dict[str, Any]:
        return {"count": 9, "median_ape_frac": abs(off), "p90_ape_frac": 2 * abs(off), "signed_median_frac": off}

    cells = [cell("p0/dp0", 512, 0.01), cell("p0/dp0", 1024, -0.02)]
    law = {"error": ape(0.03), "cells": cells}
    scores = [score(name, level, level + 0.01) for name in ("*", "long") for level in (0.5, 0.9)]
    return {
        "report": {
            "length": {"scores": []},
            "prefill": law,
            "decode": law,
            "transfer": {"error": {"local": ape(0.02)}},
        },
        "holdout": {"length": scores, "prefill": cells, "decode": []},
        "rows": {"lengths": 3759, "prefill_steps": 3674},
        "notes": [],
    }
