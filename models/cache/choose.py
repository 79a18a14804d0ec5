"""The capacity and the age that part hits from misses with the fewest errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.metrics import BoolArray, FloatArray

EDGES = 256
"""Thresholds of each kind that are tried at once; then those between the best one's neighbours, and so on."""
ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Parted:
    """A lookup is a hit if distance < `capacity` and age <= `age_s`; infinite = that one parts nothing.

    `wrong`: lookups on the wrong side.
    """

    capacity: float
    age_s: float
    wrong: int


def part(distance: FloatArray, age_s: FloatArray, hit: BoolArray, *, by_distance: bool, by_age: bool) -> Parted:
    """The best of all thresholds of the kinds that are asked for; all arrays of shape (n,), n > 0.

    A threshold is put midway between the lookups that it parts.
    """
    sign = np.where(hit, 1.0, -1.0)
    spans = [(-np.inf, np.inf), (-np.inf, np.inf)]
    best = (np.inf, np.inf)
    values = (distance, age_s)
    for _ in range(ROUNDS):
        edges = [_edges(v, span, asked) for v, span, asked in zip(values, spans, (by_distance, by_age), strict=True)]
        cells = np.zeros((len(edges[0]), len(edges[1])))
        at = np.searchsorted(edges[0], distance) * len(edges[1]) + np.searchsorted(edges[1], age_s)
        cells.ravel()[:] = np.bincount(at, weights=sign, minlength=cells.size)
        right = cells.cumsum(axis=0).cumsum(axis=1)
        i, j = np.unravel_index(int(np.argmax(right)), right.shape)
        best = (float(edges[0][i]), float(edges[1][j]))
        now = [_around(edges[0], int(i)), _around(edges[1], int(j))]
        if now == spans:
            break
        spans = now
    wrong = int(np.count_nonzero(((distance <= best[0]) & (age_s <= best[1])) != hit))
    return Parted(_midway(distance, best[0], 1.0), _midway(age_s, best[1], 0.0), wrong)


def _around(edges: FloatArray, at: int) -> tuple[float, float]:
    """The neighbours of a threshold."""
    return (float(edges[at - 1]) if at > 0 else -np.inf, float(edges[min(at + 1, len(edges) - 1)]))


def _edges(values: FloatArray, span: tuple[float, float], asked: bool) -> FloatArray:
    """Thresholds to try: an infinite one, and values within the span if thresholds are asked for, -1 among them."""
    if not asked:
        return np.array([np.inf])
    inside = np.unique(values[(values > span[0]) & (values <= span[1])])
    if len(inside) > EDGES:
        inside = inside[np.linspace(0, len(inside) - 1, EDGES).astype(np.int64)]
    low = span[0] if np.isfinite(span[0]) else -1.0
    return np.unique(np.concatenate([[low], inside, [np.inf]]))


def _midway(values: FloatArray, threshold: float, step: float) -> float:
    """Between the largest value at or below the threshold and the smallest above it; infinite if there is none."""
    above = values[values > threshold]
    if not len(above):
        return float("inf")
    below = values[values <= threshold]
    lowest = float(below.max()) if len(below) else -1.0
    return 0.5 * (lowest + step + float(above.min())) if threshold >= 0.0 else 0.0
