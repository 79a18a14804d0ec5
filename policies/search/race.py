"""The race of a batch: points are replayed day by day, and those that have clearly fallen behind the leader stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from policies.policy import Policy
from policies.search.cases import Case, CaseScore, search_score
from policies.search.space import Point, Space, apply
from policies.search.trials import Score, Trial
from policies.search.workers import Task, WorkerPool

BEHIND = 0.025
"""Chance to give up a point that is as good as the leader, after each day."""

ALIKE = 0.001
"""Softened goodput that is no lead: who is nearer than this to the leader runs whole."""

Scorer = Callable[[Iterable[Point], Trial | None], Iterator[Score]]


def racer(pool: WorkerPool, space: Space, cases: Sequence[Case]) -> Scorer:
    """What `search.search` calls: points and the leader before their batch, to scores over the train cases.

    All policies meet the same traffic and the same noise, so slices are compared in pairs. The leader stays the same
    for the whole batch: what a point scores does not depend on its neighbours or on which worker is done first.
    """
    days = [list(of_day) for _, of_day in groupby(sorted(cases, key=lambda c: (c.day, c.load)), key=lambda c: c.day)]

    def scorer(points: Iterable[Point], leader: Trial | None) -> Iterator[Score]:
        policies: list[Policy] = []

        def first_day() -> Iterator[Task]:
            for point in points:
                policies.append(apply(space, point))
                yield from ((policies[-1], case) for case in days[0])

        scores = list(pool.scores(first_day()))
        size = len(days[0])
        found: list[list[CaseScore]] = [scores[at * size : (at + 1) * size] for at in range(len(policies))]
        running = list(range(len(policies)))
        for day in days[1:]:
            if leader is not None:
                running = [i for i in running if keeps_up(search_score(found[i]).slices, leader.slices)]
            more = pool.scores([(policies[i], case) for i in running for case in day])
            for i in running:
                found[i] += [next(more) for _ in day]
        for own in found:
            score = search_score(own)
            yield score if len(own) == len(cases) or leader is None else _given_up(score, leader)

    return scorer


def keeps_up(slices: Sequence[float], leader: Sequence[float]) -> bool:
    """Whether the slices seen so far leave open that the point is as good as the leader (a paired one-sided t-test)."""
    from scipy.special import stdtrit

    lead = np.asarray(slices) - np.asarray(leader[: len(slices)])
    if len(lead) < 3:
        return True
    error = float(lead.std(ddof=1)) / float(np.sqrt(len(lead)))
    return float(lead.mean()) + float(stdtrit(len(lead) - 1, 1 - BEHIND)) * error >= -ALIKE


def _given_up(score: Score, leader: Trial) -> Score:
    behind = float(np.mean(np.asarray(score.slices) - np.asarray(leader.slices[: len(score.slices)])))
    return replace(score, value=leader.value + behind, whole=False)
