"""Trials of a search: what was tried, what it scored on every slice, and which of the good ones is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.search_space import Point, Space


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluated point. `slices`: softened goodput by slice of traffic, the same slices in every trial of a search.

    `value` is what the search climbs, the mean of goodput over train days and loads.
    """

    number: int
    point: Point
    value: float
    slices: tuple[float, ...]


def best_of(trials: Sequence[Trial]) -> Trial:
    """The highest value; equals: the earliest."""
    return min(trials, key=lambda t: (-t.value, t.number))


def within_one_error(best: Sequence[float], other: Sequence[float]) -> bool:
    """Whether `best` leads `other` by no more than one standard error of their paired difference over the slices."""
    lead = np.asarray(best) - np.asarray(other)
    if len(lead) < 2:
        return bool(lead.sum() <= 0)
    error = float(lead.std(ddof=1)) / float(np.sqrt(len(lead)))
    return float(lead.mean()) <= error


def nearest_within_one_error(space: Space, trials: Sequence[Trial], *, top: int = 20) -> Trial:
    """Of the `top` trials and the default, the one nearest to the default that the best does not lead by more than one
    standard error. A gain that the traffic cannot show is no reason to move a weight."""
    best = best_of(trials)
    ranked = sorted(trials, key=lambda t: (-t.value, t.number))[:top]
    at_default = [t for t in trials if space.distance(t.point) == 0.0]
    close = [t for t in (*ranked, *at_default) if within_one_error(best.slices, t.slices)]
    return min(close, key=lambda t: (space.distance(t.point), -t.value, t.number))
