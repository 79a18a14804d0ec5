"""One pool: the load at which the best simple rule is just good enough, the searches, the arms on the other traffic."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.pools import Pool
from benchmarks.search.traffic import Traffic, test_days, train_days
from policies.evidence.bootstrap import Blocks, Difference, difference
from policies.evidence.flows import Flow, FlowSums
from policies.evidence.sweep import SweepPlan, sweep_all
from policies.evidence.verdict import decide
from policies.policy import Policy
from policies.search.candidates import DEFAULT, PER_CLASS, SEARCHED, Candidates, find_candidates, train_cases
from policies.search.cases import Case, CaseScore
from policies.search.families import choose_winner, variants
from policies.search.identify import frozen_knobs
from policies.search.replay import save_workloads
from policies.search.search import Budget
from policies.search.space import space_around
from policies.search.workers import WorkerPool
from policies.twin.workload import Workload

SIMPLE = ("lowest_utilisation", "gated_utilisation", "lmetric", "dynamo_cost")
LEVEL, LOADS, ALPHA, MARGIN, SEED, BLOCK_S = 0.9, (1.0, 1.1), 0.025, 0.005, 1, 30.0
LEVELS = (0.5, 0.9)
GRID = (0.8, 0.9, 1.0, 1.1, 1.2, 1.4)
"""Loads at which all of the arms that stand for their kind are shown."""
FIXED = (DEFAULT, SEARCHED, PER_CLASS)
HARM = "default + harm 0.03"


@dataclass(frozen=True, slots=True)
class Row:
    """One arm on the test traffic. `load`: factor on the calibrated load that it carries at 90 %.

    `curve`: (load, goodput) where that was looked for; `grid`: the same at the loads of `GRID`, () = not asked.
    """

    arm: str
    train_frac: float
    goodput_frac: float
    by_class: Mapping[str, float]
    ttft_ms: tuple[float, float]
    tpot_ms: tuple[float, float]
    load: float
    curve: tuple[tuple[float, float], ...]
    grid: tuple[tuple[float, float], ...]
    preemptions: int
    reused_tokens: int
    moved_bytes: int
    to_simple: Difference


@dataclass(frozen=True, slots=True)
class Result:
    """`load`: of the traffic, at which the best untuned simple rule meets 90 % of the train traffic's targets.

    `winner`, `verdict`, `reason`: what a night would say if the best simple rule, picked on train, were its incumbent.
    `flows`: where requests went in pools of several racks, under that rule, the default and what was searched.
    """

    pool: str
    what: str
    load: float
    best_simple: str
    winner: str
    verdict: str
    reason: str
    rows: tuple[Row, ...]
    flows: tuple[Flow, ...]
    searches: Mapping[str, Any]
    policies: Mapping[str, Policy]
    wall_s: float


def run(pool: Pool, traffic: Traffic, budget: Budget, workers: int) -> Result:
    """Calibrate, search on train, judge on test."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        load = calibrated(pool, traffic, workers, Path(folder) / "load")
        learn, judge = train_days(pool, traffic, load), test_days(pool, traffic, load)
        save_workloads(Path(folder) / "days", learn | judge)
        with WorkerPool(traffic.factory(pool, Path(folder) / "days", SEED), workers) as replays:
            found = _search(replays, pool, list(learn), list(learn.values()), budget)
            rows, best = _judged(replays, found, pool, list(judge))
            flows = _flows(replays, found, best, list(judge)) if len(pool.racks) > 1 else ()
    policies = {a.name: a.policy for a in found.arms}
    took = time.perf_counter() - began
    said = verdict(found, rows, best)
    return Result(pool.name, pool.what, load, best, *said, rows, flows, found.summary, policies, took)


def load_of(pool: Pool, traffic: Traffic, workers: int) -> float:
    """`calibrated`, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return calibrated(pool, traffic, workers, Path(folder))


def calibrated(pool: Pool, traffic: Traffic, workers: int, folder: Path) -> float:
    """The load at which the best untuned simple rule meets `LEVEL` of the train traffic's targets."""
    save_workloads(folder, {"train": next(iter(train_days(pool, traffic, 1.0).values()))})
    plain = plain_rules(pool)
    with WorkerPool(traffic.factory(pool, folder, SEED), workers) as replays:

        def goodput(asked: Sequence[tuple[str, float]]) -> list[float]:
            tasks = [(plain[name], Case("train", load)) for name, load in asked]
            return [score.goodput_frac for score in replays.scores(tasks)]

        carried = sweep_all(list(plain), replace(traffic.plan, level=LEVEL), goodput)
        return round(max(each.load for each in carried.values()), 2)


def plain_rules(pool: Pool) -> dict[str, Policy]:
    """Every simple rule as its authors set it, and its same-rack variants."""
    racks = len(pool.racks)
    return {name: policy for family in SIMPLE for name, policy in variants(family, pool.default, racks).items()}


def _search(
    replays: WorkerPool, pool: Pool, days: Sequence[str], traffic: Sequence[Workload], budget: Budget
) -> Candidates:
    default = pool.default
    frozen = frozen_knobs(pool.cluster, pool.laws, pool.goal, traffic)
    return find_candidates(
        replays,
        space_around(default, frozen, LEVELS, pool.freedom),
        train_cases(days, LOADS),
        incumbent=replace(default, family="lmetric"),
        families=SIMPLE,
        racks=len(pool.racks),
        seed=SEED,
        budget=budget,
        freedom=pool.freedom,
    )


def _judged(replays: WorkerPool, found: Candidates, pool: Pool, days: Sequence[str]) -> tuple[tuple[Row, ...], str]:
    policies = {a.name: a.policy for a in found.arms}
    train = {a.name: float(np.mean([s.goodput_frac for s in a.train if s.case.load == 1.0])) for a in found.arms}
    simple = [a for a in found.arms if a.name not in FIXED and a.name != "incumbent"]
    best = max(simple, key=lambda a: train[a.name]).name
    # Harm is no part of the default; what it brings without a search stands beside it.
    weights = (*pool.default.classes[0].weights[:7], 0.03, 0.0)
    policies[HARM] = replace(pool.default, classes=tuple(replace(c, weights=weights) for c in pool.default.classes))
    scores = dict(zip(policies, replays.by_policy(list(policies.values()), [Case(day) for day in days]), strict=True))

    def goodput(asked: Sequence[tuple[str, float]]) -> list[float]:
        flat = replays.scores([(policies[name], Case(day, load)) for name, load in asked for day in days])
        return [float(np.mean([next(flat).goodput_frac for _ in days])) for _ in asked]

    plan = SweepPlan(LEVEL, start=1.0, step=0.1, low=0.6, high=2.0)
    carried = sweep_all(list(policies), plan, goodput)
    shown = [name for name in dict.fromkeys((*FIXED, HARM, best, "lmetric", "dynamo_cost")) if name in policies]
    flat = iter(goodput([(name, load) for name in shown for load in GRID]))
    grids = {name: tuple((load, next(flat)) for load in GRID) for name in shown}
    blocks = {name: together(own) for name, own in scores.items()}
    rows = [
        Row(
            arm=name,
            train_frac=train.get(name, math.nan),
            goodput_frac=float(np.mean([s.goodput_frac for s in own])),
            by_class={
                c.name: float(np.mean([s.outcome.goodput_frac_by_class[c.name] for s in own]))
                for c in pool.goal.classes
            },
            ttft_ms=_mean(own, "ttft_ms"),
            tpot_ms=_mean(own, "tpot_ms"),
            load=carried[name].load,
            curve=carried[name].curve,
            grid=grids.get(name, ()),
            preemptions=sum(s.outcome.preemptions for s in own),
            reused_tokens=sum(s.outcome.reused_tokens for s in own) // len(days),
            moved_bytes=sum(s.outcome.transferred_bytes for s in own) // len(days),
            to_simple=difference(blocks[name], blocks[best], alpha=ALPHA, seed=SEED),
        )
        for name, own in scores.items()
    ]
    return tuple(rows), best


def verdict(found: Candidates, rows: Sequence[Row], best: str) -> tuple[str, str, str]:
    """What a night would say with the best simple rule as its incumbent: the arm, the verdict, why."""
    arms = [a for a in found.arms if a.name in (best, *FIXED)]
    ordered = sorted(arms, key=lambda a: (a.name != best, FIXED.index(a.name) if a.name in FIXED else 0))
    winner = choose_winner(ordered).name
    lead = next(row.to_simple for row in rows if row.arm == winner)
    said = decide(
        lead, p_adjusted=lead.p_better, alpha=ALPHA, margin=MARGIN, same=winner == best, gates=(), history_days=9
    )
    return winner, said.verdict, said.reasons[0]


def _flows(replays: WorkerPool, found: Candidates, best: str, days: Sequence[str]) -> tuple[Flow, ...]:
    policies = {a.name: a.policy for a in found.arms}
    sums = {name: FlowSums(name) for name in (best, DEFAULT, SEARCHED)}
    seen = replays.details([(policies[name], Case(day)) for day in days for name in sums])
    for _ in days:
        of_day = {name: next(seen) for name in sums}
        for name, own in sums.items():
            own.add(of_day[name], of_day[best])
    return tuple(own.flow() for own in sums.values())


def together(scores: Sequence[CaseScore]) -> Blocks:
    """Blocks of time over all jitters of the same traffic: they are no independent evidence, so they stay together."""
    size = round(BLOCK_S / 5.0)
    count = max(1, min(len(s.block_value) for s in scores) // size)

    def sums(name: str) -> list[float]:
        return [
            math.fsum(
                x for s in scores for x in getattr(s, name)[at * size : None if at == count - 1 else (at + 1) * size]
            )
            for at in range(count)
        ]

    return Blocks(np.array(sums("block_value")), np.array(sums("block_weight")))


def _mean(scores: Sequence[CaseScore], which: str) -> tuple[float, float]:
    found = [getattr(s.outcome, which) for s in scores]
    return float(np.mean([q.p50 for q in found])), float(np.mean([q.p99 for q in found]))
