"""One row an arm: what each policy of the table did on the validation days, and its difference to the references."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.evidence.bootstrap import Difference, joined_blocks
from policies.evidence.sweep import LoadCarried, SweepPlan, sweep_all
from policies.objective import Outcome, Quantiles
from policies.search.cases import Case, CaseScore
from policies.search.families import Arm
from policies.search.workers import WorkerPool


@dataclass(frozen=True, slots=True)
class ArmRow:
    """One arm. Goodput is hard unless it says soft; `train_soft_frac` is the search's objective.

    Latencies are means over the validation days of each day's quantile, counts and bytes are sums over those days.
    `against_*`: paired differences on the validation days. `p_holm`: of being better than the incumbent, corrected for
    all arms of the table; None for the incumbent itself. `test_goodput_frac` is None where no test day was opened.
    """

    name: str
    family: str
    same_rack: str
    roles: tuple[str, ...]
    train_soft_frac: float
    train_goodput_frac: float
    goodput_frac: float
    goodput_frac_by_class: Mapping[str, float]
    test_goodput_frac: float | None
    load_carried: LoadCarried | None
    ttft_ms: Quantiles
    tpot_ms: Quantiles
    requests: int
    rejected: int
    failed: int
    preemptions: int
    reused_tokens: int
    transferred_bytes: int
    output_tokens_per_s: float
    against_incumbent: Difference
    against_default: Difference
    p_holm: float | None


def day_cases(days: Sequence[str], load: float = 1.0) -> list[Case]:
    """The days at one load."""
    return [Case(day, load) for day in days]


def pooled_goodput(scores: Sequence[CaseScore]) -> float:
    """Hard goodput of several cases together, every request at its weight."""
    return joined_blocks(scores, 30.0).goodput_frac


def load_sweeps(
    pool: WorkerPool,
    arms: Sequence[Arm],
    days: Sequence[str],
    plan: SweepPlan,
    known: Mapping[str, Sequence[CaseScore]],
) -> Mapping[str, LoadCarried]:
    """Load carried by every arm over `days`. `known`: scores at load 1.0 over the same days, not replayed again."""
    policies = {a.name: a.policy for a in arms}

    def goodput(asked: Sequence[tuple[str, float]]) -> list[float]:
        fresh = [(name, load) for name, load in asked if load != 1.0 or name not in known]
        flat = pool.scores([(policies[name], case) for name, load in fresh for case in day_cases(days, load)])
        found = {(name, load): pooled_goodput([next(flat) for _ in days]) for name, load in fresh}
        return [found[key] if key in found else pooled_goodput(known[key[0]]) for key in asked]

    return sweep_all(list(policies), plan, goodput)


def merged_latency(outcomes: Sequence[Outcome], which: Callable[[Outcome], Quantiles]) -> Quantiles:
    """Mean over days of each quantile, over the days that have it."""

    def mean(values: Sequence[float | None]) -> float | None:
        known = [v for v in values if v is not None]
        return float(np.mean(known)) if known else None

    days = [which(o) for o in outcomes]
    return Quantiles(mean([d.p50 for d in days]), mean([d.p95 for d in days]), mean([d.p99 for d in days]))


def arm_row(
    arm: Arm,
    roles: tuple[str, ...],
    validation: Sequence[CaseScore],
    test: Sequence[CaseScore],
    carried: LoadCarried | None,
    against_incumbent: Difference,
    against_default: Difference,
    p_holm: float | None,
) -> ArmRow:
    """Put a row together from the arm's scores at load 1.0."""
    outcomes = [score.outcome for score in validation]
    return ArmRow(
        name=arm.name,
        family=arm.policy.family,
        same_rack=arm.policy.same_rack,
        roles=roles,
        train_soft_frac=arm.value,
        train_goodput_frac=pooled_goodput([s for s in arm.train if s.case.load == 1.0]),
        goodput_frac=pooled_goodput(validation),
        goodput_frac_by_class={
            name: float(np.mean([o.goodput_frac_by_class[name] for o in outcomes]))
            for name in outcomes[0].goodput_frac_by_class
        },
        test_goodput_frac=pooled_goodput(test) if test else None,
        load_carried=carried,
        ttft_ms=merged_latency(outcomes, lambda o: o.ttft_ms),
        tpot_ms=merged_latency(outcomes, lambda o: o.tpot_ms),
        requests=sum(o.requests for o in outcomes),
        rejected=sum(o.rejected for o in outcomes),
        failed=sum(o.failed for o in outcomes),
        preemptions=sum(o.preemptions for o in outcomes),
        reused_tokens=sum(o.reused_tokens for o in outcomes),
        transferred_bytes=sum(o.transferred_bytes for o in outcomes),
        output_tokens_per_s=float(np.mean([o.output_tokens_per_s for o in outcomes])),
        against_incumbent=against_incumbent,
        against_default=against_default,
        p_holm=p_holm,
    )
