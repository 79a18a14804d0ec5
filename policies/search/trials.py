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


def best_of(trials: Sequence[Trial], loss: float | None = None) -> Trial:
    """The highest value of those that ran whole and keep the limits; equals: the earliest."""
    return min(eligible(trials, loss), key=lambda t: (-t.value, t.number))


def eligible(trials: Sequence[Trial], loss: float | None = None) -> list[Trial]:
    """Trials that ran whole and in which no class loses more than `loss` against the first: where the search began."""
    return [t for t in trials if t.score.whole and all(short <= 0 for short in shortfalls(trials[0], t, loss))]


def shortfalls(first: Trial, trial: Trial, loss: float | None) -> tuple[float, ...]:
    """By how much hard goodput of each class misses its limit (the first trial's less `loss`); 0 or less is kept."""
    if loss is None:
        return ()
    return tuple(was - loss - now for was, now in zip(first.score.classes, trial.score.classes, strict=True))


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
    space: Space, trials: Sequence[Trial], *, top: int = 20, loss: float | None = None
) -> Trial:
    """Of the `top` trials and the default, the one nearest to the default that the best does not lead by more than one
    standard error. A gain that the traffic cannot show is no reason to move a weight."""
    able = eligible(trials, loss)
    best = best_of(trials, loss)
    ranked = sorted(able, key=lambda t: (-t.value, t.number))[:top]
    at_default = [t for t in able if space.distance(t.point) == 0.0]
    close = [t for t in (*ranked, *at_default) if within_one_error(best.slices, t.slices)]
    return min(close, key=lambda t: (space.distance(t.point), -t.value, t.number))
