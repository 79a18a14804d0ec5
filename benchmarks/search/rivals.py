"""Other ways to search, with as many replays: what each finds is judged on the test traffic, by hard goodput."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.search.contest import ALPHA, LEVELS, LOADS, SEED, plain_rules, together
from benchmarks.search.pools import Pool
from benchmarks.search.traffic import Traffic, test_days, train_days
from policies.evidence.bootstrap import Difference, difference
from policies.policy import Policy
from policies.search.cases import PIECES, Case, CaseScore, search_score
from policies.search.identify import frozen_knobs
from policies.search.race import racer
from policies.search.replay import save_workloads
from policies.search.search import Budget, Evaluate, SearchResult, search
from policies.search.space import Point, Space, apply, space_around
from policies.search.trials import Score, Trial, eligible, within_one_error
from policies.search.workers import Task, WorkerPool

SEEDS = (1, 2, 3)
"""Of every search."""
STRANGERS = tuple(range(101, 109))
"""Draws of chance of a search without common random numbers."""
DEFAULT, CHOSEN, BEST = "untuned default", "routecal", "routecal, its best"
HARD_BEST, HARD_CHOSEN = "routecal, decided on hard goodput", "the same, nearest within one standard error"
TOP = 20

Scored = Callable[[Sequence[CaseScore]], Score]
Found = dict[str, Policy]


@dataclass(frozen=True, slots=True)
class Held:
    """What one way brought on the test traffic: hard goodput for each seed of its search; `to_chosen`: less routecal's.

    The interval is over blocks of time, all seeds and draws of chance together.
    """

    way: str
    goodput_frac: tuple[float, ...]
    to_chosen: Difference


def held_out(
    pool: Pool, traffic: Traffic, load: float, trials: int, workers: int, seeds: Sequence[int] = SEEDS
) -> list[Held]:
    """Every way in turn: plain rules first, then what was searched."""
    learn, judge = train_days(pool, traffic, load), test_days(pool, traffic, load)
    strangers = {f"stranger {seed}": traffic.day(pool, load, seed, train=True) for seed in STRANGERS}
    cases = [Case(day, each) for day in learn for each in LOADS]
    frozen = frozen_knobs(pool.cluster, pool.laws, pool.goal, list(learn.values()))
    space = space_around(pool.default, frozen, LEVELS, pool.freedom)
    with tempfile.TemporaryDirectory() as folder:
        save_workloads(Path(folder), learn | judge | strangers)
        replays = _Counted(traffic.factory(pool, Path(folder), SEED), workers)
        with replays:
            plain = {DEFAULT: space.default} | _families(replays, plain_rules(pool), cases)
            found = [plain | _searched(replays, space, cases, trials, seed) for seed in seeds]
            return _judged(replays, found, [Case(day) for day in judge])


class _Counted(WorkerPool):
    """Counts its replays, so that every way gets as many as the race took."""

    done = 0

    def scores(self, tasks: Iterable[Task]) -> Iterator[CaseScore]:
        for score in super().scores(tasks):
            self.done += 1
            yield score


def _families(replays: WorkerPool, rules: Mapping[str, Policy], cases: Sequence[Case]) -> Found:
    """The plain variant of every family that does best on train, and the best of them all."""
    scores = replays.by_policy(list(rules.values()), cases)
    train = {name: _hard_frac(own) for name, own in zip(rules, scores, strict=True)}
    families = dict.fromkeys(policy.family for policy in rules.values())
    best = {f: max((n for n in rules if rules[n].family == f), key=lambda n: train[n]) for f in families}
    top = max(train, key=lambda n: train[n])
    return {"best plain rule": rules[top]} | {f"plain {family}": rules[name] for family, name in best.items()}


def _searched(replays: _Counted, space: Space, cases: Sequence[Case], trials: int, seed: int) -> Found:
    budget = Budget(trials=trials, batch=8, patience=trials)
    before = replays.done
    own = search(space, racer(replays, space, cases), seed=seed, budget=budget)
    same = max(1, (replays.done - before) // len(cases))
    budget = replace(budget, trials=same, patience=same)
    ways: dict[str, tuple[Evaluate, Budget]] = {
        "no race": (_plain(replays, space, cases), budget),
        "random search": (_plain(replays, space, cases), replace(budget, startup=same)),
        "hard objective": (_plain(replays, space, cases, _hard), budget),
        "no common random numbers": (_strange(replays, space, len(cases), seed), budget),
    }
    points = {CHOSEN: own.chosen.point, BEST: own.best.point} | decided_hard(replays, space, own, cases)
    for name, (evaluate, each) in ways.items():
        result = search(space, evaluate, seed=seed, budget=each)
        points |= {name: result.best.point, f"{name}, nearest within one standard error": result.chosen.point}
    return {name: apply(space, point) for name, point in points.items()}


def decided_hard(replays: WorkerPool, space: Space, result: SearchResult, cases: Sequence[Case]) -> dict[str, Point]:
    """Of the trials that are best by softened goodput: the best by hard goodput, and the one nearest to the default
    that it does not lead by more than one standard error of hard goodput.
    """
    ranked = sorted(eligible(result.trials), key=lambda t: (-t.value, t.number))[:TOP]
    close = list({t.number: t for t in (*ranked, result.trials[0])}.values())
    scores = replays.by_policy([apply(space, t.point) for t in close], cases)
    slices = {t.number: hard_slices(own) for t, own in zip(close, scores, strict=True)}
    best = min(close, key=lambda t: (-float(np.mean(slices[t.number])), t.number))
    able = [t for t in close if within_one_error(slices[best.number], slices[t.number])]
    near = min(able, key=lambda t: (space.distance(t.point), -float(np.mean(slices[t.number])), t.number))
    return {HARD_BEST: best.point, HARD_CHOSEN: near.point}


def hard_slices(scores: Sequence[CaseScore]) -> tuple[float, ...]:
    """Hard goodput of every day's `PIECES` pieces of time, the mean over its loads."""
    days = sorted({s.case.day for s in scores})
    found: list[float] = []
    for day in days:
        rows = [_pieces(s) for s in scores if s.case.day == day]
        found += np.mean(rows, axis=0).tolist()
    return tuple(found)


def _pieces(score: CaseScore) -> list[float]:
    """Of about as much weight each."""
    value, weight = np.array(score.block_value), np.array(score.block_weight)
    piece = np.minimum((np.cumsum(weight) - weight / 2) * PIECES // weight.sum(), PIECES - 1).astype(np.int64)
    sums = [np.bincount(piece, weights=each, minlength=PIECES) for each in (value, weight)]
    return [float(v / w) if w > 0 else 0.0 for v, w in zip(*sums, strict=True)]


def _judged(replays: WorkerPool, found: Sequence[Found], judge: Sequence[Case]) -> list[Held]:
    policies = list(dict.fromkeys(policy for each in found for policy in each.values()))
    scores = dict(zip(policies, replays.by_policy(policies, judge), strict=True))
    blocks = {name: together([s for each in found for s in scores[each[name]]]) for name in found[0]}
    return [
        Held(
            name,
            tuple(_hard_frac(scores[each[name]]) for each in found),
            difference(blocks[name], blocks[CHOSEN], alpha=ALPHA, seed=SEED),
        )
        for name in found[0]
    ]


def _hard_frac(scores: Sequence[CaseScore]) -> float:
    return float(np.mean([s.goodput_frac for s in scores]))


def _plain(replays: WorkerPool, space: Space, cases: Sequence[Case], scored: Scored = search_score) -> Evaluate:
    def evaluate(points: Iterable[Point], _: Trial | None) -> Iterator[Score]:
        for scores in replays.by_policy([apply(space, point) for point in points], cases):
            yield scored(scores)

    return evaluate


def _hard(scores: Sequence[CaseScore]) -> Score:
    return replace(search_score(scores), value=_hard_frac(scores), slices=hard_slices(scores))


def _strange(replays: WorkerPool, space: Space, each: int, seed: int) -> Evaluate:
    """Every point meets traffic of its own: as many replays, of draws of chance that no other point has."""
    drawn = np.random.default_rng(seed)

    def evaluate(points: Iterable[Point], _: Trial | None) -> Iterator[Score]:
        for point in points:
            days = drawn.choice(STRANGERS, each // len(LOADS), replace=False)
            cases = [Case(f"stranger {day}", load) for day in sorted(days) for load in LOADS]
            yield search_score(next(replays.by_policy([apply(space, point)], cases)))

    return evaluate
