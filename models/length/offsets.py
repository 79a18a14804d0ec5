"""Offsets that make a table cover the newest answers, group by group, and how fast the online rule moves them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from models.metrics import FloatArray, IntArray

PRIOR_ROWS = 50.0
"""A group of n rows keeps n / (n + this) of its own offset, in logs; the rest is its parent's."""
MEMORY_ANSWERS = 100.0
"""The online rule follows about this many answers of a group."""
LEAST_PACE, MOST_PACE = 0.001, 0.2


def conformal_offsets(
    log_ratio: FloatArray, place: IntArray, groups: Sequence[str], parent: Mapping[str, str], levels: Sequence[float]
) -> dict[str, tuple[float, ...]]:
    """One-sided conformal offsets by group: factors on the table. Parents stand before their children in `groups`.

    `log_ratio`: log(output / table) of the newest answers, shape (rows, levels); `place`: each row's group. An offset
    covers the rows of its group and of all groups below it. See Romano, Patterson & Candès (2019), here one-sided.
    """
    found: dict[str, FloatArray] = {}
    for name in groups:
        members = np.isin(place, [at for at, other in enumerate(groups) if name in _line(other, parent)])
        ratios = log_ratio[members]
        above = found.get(parent[name], np.zeros(len(levels)))
        if not len(ratios):
            found[name] = above
            continue
        own = upper_quantiles(ratios, levels)
        keep = 1.0 if parent[name] == name else len(ratios) / (len(ratios) + PRIOR_ROWS)
        found[name] = keep * own + (1.0 - keep) * above
    return {name: tuple(math.exp(value) for value in values.tolist()) for name, values in found.items()}


def upper_quantiles(values: FloatArray, levels: Sequence[float]) -> FloatArray:
    """Of each column k the order statistic ceil((n + 1)·levels[k]), at most n: a new draw stays at or under it with
    probability >= the level. `values`: shape (n, levels), n > 0.
    """
    count = len(values)
    ranks = [min(count, math.ceil((count + 1) * level - 1e-9)) - 1 for level in levels]
    return np.array([np.partition(values[:, at], rank)[rank] for at, rank in enumerate(ranks)])


def paces(log_ratio: FloatArray, levels: Sequence[float]) -> tuple[float, ...]:
    """Step of the online rule by level: 1 / density of log(output / table) at the level, over MEMORY_ANSWERS.

    The step of Robbins & Monro (1951) for a quantile, held constant so that it keeps following.
    """
    found = []
    for at, level in enumerate(levels):
        reach = min(level, 1.0 - level) / 2.0
        low, high = np.quantile(log_ratio[:, at], [level - reach, level + reach])
        pace = float(high - low) / (2.0 * reach) / MEMORY_ANSWERS
        found.append(min(MOST_PACE, max(LEAST_PACE, pace)))
    return tuple(found)


def _line(name: str, parent: Mapping[str, str]) -> set[str]:
    """A group and all above it."""
    line = {name}
    while parent[name] not in line:
        name = parent[name]
        line.add(name)
    return line
