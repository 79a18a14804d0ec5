"""The evidence of one night: every arm on days that the search never saw, the gates, the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from features.errors import PolicyError
from policies.evidence.arms import ArmRow, arm_row, day_cases, load_sweeps
from policies.evidence.bootstrap import Blocks, Difference, block_length_s, difference, holm, joined_blocks
from policies.evidence.drills import DrillPlan, drill_replays, run_drills
from policies.evidence.explain import Explanation, Subject, explain, explanation_replays, joint_of
from policies.evidence.gates import DRILLS, TEST_DAY, Gate, complete, not_run
from policies.evidence.refits import lead_over_refits, refit_replays, refits_gate
from policies.evidence.sweep import SweepPlan, most_loads
from policies.evidence.verdict import Cap, Name, decide, points, validation_gate
from policies.search.cases import CaseScore
from policies.search.families import Arm
from policies.search.workers import WorkerPool


@dataclass(frozen=True, slots=True)
class Plan:
    """What is judged on what, fixed before anything is replayed. Days are names of workloads.

    `alpha`: chance of a false `better`; intervals are at level 1 - 2·alpha. `margin`: least gain in goodput that is a
    finding. `waivers`: gates that may stay unrun. `sweep` None leaves out the load carried, `drills` None the drills.
    `explained`: some dozens of replays more that say why the winner wins. `refits`: of the estimators, as many as the
    pool's evaluator holds.
    """

    train_days: tuple[str, ...]
    validation_days: tuple[str, ...]
    test_days: tuple[str, ...]
    seed: int
    history_days: int
    alpha: float = 0.025
    margin: float = 0.005
    resamples: int = 4000
    waivers: tuple[str, ...] = ()
    sweep: SweepPlan | None = field(default_factory=SweepPlan)
    explained: bool = False
    drills: DrillPlan | None = None
    refits: int = 0

    def __post_init__(self) -> None:
        days = [*self.train_days, *self.validation_days, *self.test_days]
        if len(set(days)) != len(days):
            raise PolicyError("train, validation and test days share no day", value=sorted(days))
        if not self.validation_days:
            raise PolicyError("a plan has at least one validation day", value=self.validation_days)


@dataclass(frozen=True, slots=True)
class Optimism:
    """How much the train days flattered: hard goodput at load 1, gain over the incumbent. None = no test day."""

    train_goodput_frac: float
    validation_goodput_frac: float
    test_goodput_frac: float | None
    train_gain: float
    validation_gain: float
    test_gain: float | None
    optimism: float | None  # train - test goodput
    gain_optimism: float | None  # train - test gain: days of another weight cancel


@dataclass(frozen=True, slots=True)
class Evidence:
    """Plain values only; `to_json` is what the policy file carries. `search`: what the search reports of itself.

    `explanation`: None where the plan does not ask for it.
    """

    verdict: Name
    promotion_cap: Cap
    reasons: tuple[str, ...]
    gates: tuple[Gate, ...]
    winner: str
    incumbent: str
    default: str
    difference_to_incumbent: Difference
    difference_to_default: Difference
    test_difference_to_incumbent: Difference | None
    optimism: Optimism
    arms: tuple[ArmRow, ...]
    train_days: tuple[str, ...]
    validation_days: tuple[str, ...]
    test_days: tuple[str, ...]
    block_s: float
    relaxation_s: Mapping[str, float]
    alpha: float
    margin: float
    search: Mapping[str, Any]
    explanation: Explanation | None = None


def gather(
    pool: WorkerPool,
    arms: Sequence[Arm],
    *,
    winner: str,
    incumbent: str,
    default: str,
    plan: Plan,
    gates: Sequence[Gate] = (),
    search: Mapping[str, Any] | None = None,
) -> Evidence:
    """Replay every arm on the validation and test days and judge `winner` against `incumbent` (names of arms).

    `gates`: those that were run elsewhere (forced placement, policy replay); validation, refits, drills and the test
    day are judged here, the rest stands as not run. A pure function of its arguments and the pool's evaluator.
    """
    named = {a.name: a for a in arms}
    if len(named) != len(arms) or not {winner, incumbent, default} <= set(named):
        raise PolicyError("arms have unique names, winner, incumbent and default are among them", value=sorted(named))
    validation = _replayed(pool, arms, plan.validation_days)
    test = _replayed(pool, arms, plan.test_days)
    relaxation_s = {s.case.day: s.relaxation_s for s in validation[incumbent]}
    block_s = block_length_s(list(relaxation_s.values()))
    blocks = {name: joined_blocks(scores, block_s) for name, scores in validation.items()}

    def lead(candidate: Blocks, reference: Blocks) -> Difference:
        return difference(candidate, reference, alpha=plan.alpha, seed=plan.seed, resamples=plan.resamples)

    def lead_of_scores(candidate: Sequence[CaseScore], reference: Sequence[CaseScore]) -> Difference:
        return lead(joined_blocks(candidate, block_s), joined_blocks(reference, block_s))

    to_incumbent = {name: lead(blocks[name], blocks[incumbent]) for name in named}
    to_default = {name: lead(blocks[name], blocks[default]) for name in named}
    adjusted = holm({name: to_incumbent[name].p_better for name in named if name != incumbent})
    drills = not_run(DRILLS)
    if plan.drills is not None:
        pair = named[winner].policy, named[incumbent].policy
        drills = run_drills(pool, *pair, plan.validation_days, plan.drills, lead_of_scores)
    test_lead = lead_of_scores(test[winner], test[incumbent]) if plan.test_days else None
    main = to_incumbent[winner]
    again = lead_over_refits(
        pool,
        named[winner].policy,
        named[incumbent].policy,
        plan.validation_days,
        plan.refits,
        block_s,
        alpha=plan.alpha,
        seed=plan.seed,
        resamples=plan.resamples,
    )
    own = [validation_gate(main, block_s), refits_gate(again, main), drills, _test_gate(test_lead)]
    judged = complete([*gates, *own], plan.waivers)
    found = decide(
        main,
        p_adjusted=adjusted.get(winner, 1.0),
        alpha=plan.alpha,
        margin=plan.margin,
        same=named[winner].policy == named[incumbent].policy,
        gates=judged,
        history_days=plan.history_days,
        over_refits=again.combined if again.enough else None,
    )
    carried = load_sweeps(pool, arms, plan.validation_days, plan.sweep, validation) if plan.sweep else {}
    explanation = None
    if plan.explained:
        subject = Subject(
            arms={name: named[name].policy for name in (winner, incumbent, default)},
            joint=joint_of(arms, winner),
            winner=winner,
            incumbent=incumbent,
            default=default,
            days=plan.validation_days,
            known=validation,
            lead=to_incumbent[winner],
            block_s=block_s,
            alpha=plan.alpha,
            margin=plan.margin,
            seed=plan.seed,
            resamples=plan.resamples,
        )
        explanation = explain(pool, subject)
    roles = {name: _roles(name, winner, incumbent, default) for name in named}
    rows = {
        name: arm_row(
            named[name],
            roles[name],
            validation[name],
            test[name],
            carried.get(name),
            to_incumbent[name],
            to_default[name],
            adjusted.get(name),
        )
        for name in named
    }
    return Evidence(
        verdict=found.verdict,
        promotion_cap=found.promotion_cap,
        reasons=found.reasons,
        gates=judged,
        winner=winner,
        incumbent=incumbent,
        default=default,
        difference_to_incumbent=main,
        difference_to_default=to_default[winner],
        test_difference_to_incumbent=test_lead,
        optimism=_optimism(rows[winner], rows[incumbent]),
        arms=tuple(rows.values()),
        train_days=plan.train_days,
        validation_days=plan.validation_days,
        test_days=plan.test_days,
        block_s=block_s,
        relaxation_s=relaxation_s,
        alpha=plan.alpha,
        margin=plan.margin,
        search=dict(search or {}),
        explanation=explanation,
    )


def gather_replays(arms: Sequence[Arm], *, winner: str, incumbent: str, default: str, plan: Plan) -> int:
    """Replays that `gather` makes at most; sweeps may end earlier, all else is exact."""
    policies, days = {a.name: a.policy for a in arms}, len(plan.validation_days)
    pair = policies[winner], policies[incumbent]
    found = len(arms) * (days + len(plan.test_days)) + refit_replays(*pair, days, plan.refits)
    if plan.drills is not None:
        found += drill_replays(*pair, days, plan.drills)
    if plan.sweep is not None:
        found += len(arms) * days * most_loads(plan.sweep)
    if plan.explained:
        told = {name: policies[name] for name in (winner, incumbent, default)}
        found += explanation_replays(told, joint_of(arms, winner), winner, default, days)
    return found


def to_json(value: Any) -> Any:  # noqa: ANN401
    """Any value of the evidence as plain JSON. Raises PolicyError for a number that JSON does not have."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise PolicyError("evidence holds finite numbers only", value=value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise PolicyError("evidence holds plain values only", value=type(value).__name__)


def _replayed(pool: WorkerPool, arms: Sequence[Arm], days: Sequence[str]) -> dict[str, tuple[CaseScore, ...]]:
    scores = pool.by_policy([a.policy for a in arms], day_cases(days))
    return {a.name: found for a, found in zip(arms, scores, strict=True)}


def _test_gate(lead: Difference | None) -> Gate:
    """The test day must not contradict: no significant loss there."""
    if lead is None:
        return not_run(TEST_DAY)
    detail = f"on the test day goodput differs from the incumbent's by {points(lead)}"
    return Gate(TEST_DAY, "fail" if lead.high < 0 else "pass", detail, lead.value, 0.0, (lead.low, lead.high))


def _roles(name: str, winner: str, incumbent: str, default: str) -> tuple[str, ...]:
    wanted = (("winner", winner), ("incumbent", incumbent), ("default", default))
    return tuple(role for role, holder in wanted if holder == name)


def _optimism(winner: ArmRow, incumbent: ArmRow) -> Optimism:
    train_gain = winner.train_goodput_frac - incumbent.train_goodput_frac
    test, reference = winner.test_goodput_frac, incumbent.test_goodput_frac
    test_gain = None if test is None or reference is None else test - reference
    return Optimism(
        train_goodput_frac=winner.train_goodput_frac,
        validation_goodput_frac=winner.goodput_frac,
        test_goodput_frac=test,
        train_gain=train_gain,
        validation_gain=winner.goodput_frac - incumbent.goodput_frac,
        test_gain=test_gain,
        optimism=None if test is None else winner.train_goodput_frac - test,
        gain_optimism=None if test_gain is None else train_gain - test_gain,
    )
