"""Other ways to search, with as many replays: what each finds is judged on the test traffic, by hard goodput."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.search.contest import LEVELS, LOADS, SEED
from benchmarks.search.pools import Pool
from benchmarks.search.traffic import day_of, test_days, train_days
from policies.policy import Policy
from policies.search.cases import Case, CaseScore, search_score
from policies.search.identify import frozen_knobs
from policies.search.race import racer
from policies.search.replay import ReplayFactory, save_workloads
from policies.search.search import Budget, Evaluate, search
from policies.search.space import Point, Space, apply, space_around
from policies.search.trials import Score, Trial
from policies.search.workers import Task, WorkerPool
from policies.twin.workload import Workload

STRANGERS = tuple(range(101, 109))
"""Jitters of a search without common random numbers."""

Scored = Callable[[Sequence[CaseScore]], Score]


def held_out(pool: Pool, trace: Workload, load: float, trials: int, workers: int) -> dict[str, float]:
    """Hard goodput on the test traffic of what every way to search chose."""
    learn, judge = train_days(pool, trace, load), test_days(pool, trace, load)
    strangers = {f"stranger {seed}": day_of(pool, trace, load, seed, train=True) for seed in STRANGERS}
    cases = [Case(day, each) for day in learn for each in LOADS]
    frozen = frozen_knobs(pool.cluster, pool.laws, pool.goal, list(learn.values()))
    space = space_around(pool.default, frozen, LEVELS, pool.freedom)
    budget = Budget(trials=trials, batch=8, patience=trials)
    with tempfile.TemporaryDirectory() as folder:
        save_workloads(Path(folder), learn | judge | strangers)
        factory = ReplayFactory(Path(folder), pool.cluster, pool.laws, pool.goal, SEED)
        with _Counted(factory, workers) as replays:
            own = search(space, racer(replays, space, cases), seed=SEED, budget=budget)
            chosen: dict[str, Policy] = {"default": space.default, "routecal": apply(space, own.chosen.point)}
            same = replays.done // len(cases)
            budget = replace(budget, trials=same, patience=same)
            ways: dict[str, tuple[Evaluate, Budget]] = {
                "random search": (_plain(replays, space, cases), replace(budget, startup=same)),
                "hard objective": (_plain(replays, space, cases, _hard), budget),
                "no common random numbers": (_strange(replays, space, len(cases)), budget),
            }
            for name, (evaluate, each) in ways.items():
                chosen[name] = apply(space, search(space, evaluate, seed=SEED, budget=each).best.point)
            scores = replays.by_policy(list(chosen.values()), [Case(day) for day in judge])
            return {
                name: float(np.mean([s.goodput_frac for s in own])) for name, own in zip(chosen, scores, strict=True)
            }


class _Counted(WorkerPool):
    """Counts its replays, so that every way gets as many as the race took."""

    done = 0

    def scores(self, tasks: Iterable[Task]) -> Iterator[CaseScore]:
        for score in super().scores(tasks):
            self.done += 1
            yield score


def _plain(replays: WorkerPool, space: Space, cases: Sequence[Case], scored: Scored = search_score) -> Evaluate:
    def evaluate(points: Iterable[Point], _: Trial | None) -> Iterator[Score]:
        for scores in replays.by_policy([apply(space, point) for point in points], cases):
            yield scored(scores)

    return evaluate


def _hard(scores: Sequence[CaseScore]) -> Score:
    soft = search_score(scores)
    return replace(soft, value=float(np.mean([s.goodput_frac for s in scores])))


def _strange(replays: WorkerPool, space: Space, each: int) -> Evaluate:
    """Every point meets traffic of its own: as many replays, jitters and seeds that no other point has."""
    drawn = np.random.default_rng(SEED)

    def evaluate(points: Iterable[Point], _: Trial | None) -> Iterator[Score]:
        for point in points:
            days = drawn.choice(STRANGERS, each // len(LOADS), replace=False)
            cases = [Case(f"stranger {day}", load) for day in sorted(days) for load in LOADS]
            yield search_score(next(replays.by_policy([apply(space, point)], cases)))

    return evaluate
