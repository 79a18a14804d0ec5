"""Random draws that every router can repeat without a maths library: tables of quantiles, read at a hash."""

from __future__ import annotations

import math

from policies.mixing import mix

POINTS = 4096
DECIMALS = 12
CHOICE = 1 << 36
"""Keeps draws among nodes apart from ties and jitter."""


def exponential_table() -> tuple[float, ...]:
    """-ln(u) at u = (k + 1/2) / 4096, 12 decimals: waiting times of mean 1."""
    return tuple(round(-math.log((k + 0.5) / POINTS), DECIMALS) for k in range(POINTS))


def gumbel_table() -> tuple[float, ...]:
    """-ln(-ln(u)) at the same u: the largest of value + Gumbel is a draw from the softmax of the values."""
    return tuple(round(-math.log(-math.log((k + 0.5) / POINTS)), DECIMALS) for k in range(POINTS))


EXPONENTIAL = exponential_table()
GUMBEL = gumbel_table()


def node_draw(tie_seed: int, index: int, *, decode: bool) -> int:
    """Place in a table for one node."""
    return mix(tie_seed ^ (CHOICE + 2 * index + int(decode))) >> 52


def two_of(tie_seed: int, count: int, *, decode: bool) -> tuple[int, int]:
    """Two different numbers below `count` (at least 2), every pair as likely as any other."""
    first = mix(tie_seed ^ (2 * CHOICE + int(decode))) % count
    step = mix(tie_seed ^ (2 * CHOICE + 2 + int(decode))) % (count - 1)
    return first, (first + 1 + step) % count
