"""Compiled draws of `policies.draws`."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.draws import CHOICE
from policies.families.parts_kernel import mix
from policies.kernel_types import Float64

NODE = np.uint64(CHOICE)
TWO = np.uint64(2 * CHOICE)
SHIFT_52 = np.uint64(52)


@kernel
def node_draw(seed: np.uint64, index: int, side: int) -> int:
    """Place in a table for one node."""
    return int(mix(seed ^ (NODE + np.uint64(2 * index + side))) >> SHIFT_52)


@kernel
def two_of(seed: np.uint64, count: int, side: int) -> tuple[int, int]:
    """Two different numbers below `count`, at least 2."""
    first = int(mix(seed ^ (TWO + np.uint64(side))) % np.uint64(count))
    step = int(mix(seed ^ (TWO + np.uint64(2 + side))) % np.uint64(count - 1))
    return first, (first + 1 + step) % count


@kernel
def span(values: Float64) -> tuple[float, float]:
    """Smallest and largest known value among the candidates; (inf, -inf) if none is known."""
    low, high = np.inf, -np.inf
    for value in values:
        if value == np.inf or np.isnan(value):
            continue
        low = value if value < low else low
        high = value if value > high else high
    return low, high
