"""Trials of a search: what was tried, what it scored on every slice, and which of the good ones is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.search.space import Point, Space


@dataclass(frozen=True, slots=True)
class Score:
    """What a point scored. `slices`: softened goodput by slice of traffic, the same slices in every whole trial.

    `value` is what the search climbs, the mean of softened goodput over train days and loads. `classes`: hard goodput
    of every SLO class. `goodput_frac` (hard), `ttft_p99_ms` and `moved_bytes` are means over cases, for people. Not
    `whole`: the race gave it up after these slices, and `value` is the leader's less the mean it was behind.
    """

    value: float
    slices: tuple[float, ...]
    classes: tuple[float, ...] = ()
    whole: bool = True
    goodput_frac: float = 0.0
    ttft_p99_ms: float = 0.0
    moved_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluated point."""

    number: int
    point: Point
    score: Score

    @property
    def value(self) -> float:
        """The score's."""
        return self.score.value

    @property
    def slices(self) -> tuple[float, ...]:
        """The score's."""
        return self.score.slices


def best_of(trials: Sequence[Trial], limits: Sequence[float] = ()) -> Trial:
    """The highest value of the eligible; equals: the earliest."""
    return min(eligible(trials, limits), key=lambda t: (-t.value, t.number))


def eligible(trials: Sequence[Trial], limits: Sequence[float] = ()) -> list[Trial]:
    """Trials that ran whole and keep every class's limit; if there is none, those that miss one by the least."""
    whole = [t for t in trials if t.score.whole]
    least = min(missed(t, limits) for t in whole)
    return [t for t in whole if missed(t, limits) == least]


def missed(trial: Trial, limits: Sequence[float]) -> float:
    """The most by which a class misses its limit; 0 = all are kept."""
    return max(0.0, *shortfalls(trial.score.classes, limits))


def shortfalls(classes: Sequence[float], limits: Sequence[float]) -> tuple[float, ...]:
    """By how much hard goodput of each class misses the least that it must have; 0 or less is kept. No limits: (0,)."""
    return tuple(least - now for least, now in zip(limits, classes, strict=True)) if limits else (0.0,)


def front(trials: Sequence[Trial]) -> list[Trial]:
    """Whole trials that no other one beats in goodput, P99 TTFT and bytes at once, the best goodput first."""
    whole = [t for t in trials if t.score.whole]
    costs = {t.number: (-t.score.goodput_frac, t.score.ttft_p99_ms, t.score.moved_bytes) for t in whole}

    def beaten(own: Trial) -> bool:
        mine = costs[own.number]
        return any(
            theirs != mine and all(a <= b for a, b in zip(theirs, mine, strict=True)) for theirs in costs.values()
        )

    kept = {costs[t.number]: t for t in reversed(whole) if not beaten(t)}  # equals: the earliest
    return [kept[cost] for cost in sorted(kept)]


def within_one_error(best: Sequence[float], other: Sequence[float]) -> bool:
    """Whether `best` leads `other` by no more than one standard error of their paired difference over the slices."""
    lead = np.asarray(best) - np.asarray(other)
    if len(lead) < 2:
        return bool(lead.sum() <= 0)
    error = float(lead.std(ddof=1)) / float(np.sqrt(len(lead)))
    return float(lead.mean()) <= error


def nearest_within_one_error(
    space: Space, trials: Sequence[Trial], *, top: int = 20, limits: Sequence[float] = (), anchor: Point | None = None
) -> Trial:
    """Of the `top` trials, the default and the anchor, the one nearest to the anchor (None = the default) that the best
    does not lead by more than one standard error. A gain that the traffic cannot show is no reason to move a weight."""
    able = eligible(trials, limits)
    best = best_of(trials, limits)
    ranked = sorted(able, key=lambda t: (-t.value, t.number))[:top]
    ends = [t for t in able if space.distance(t.point) == 0.0 or space.distance(t.point, anchor) == 0.0]
    close = [t for t in (*ranked, *ends) if within_one_error(best.slices, t.slices)]
    return min(close, key=lambda t: (space.distance(t.point, anchor), -t.value, t.number))
