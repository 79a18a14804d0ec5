"""Compiled keys of `policies.families.round_robin`."""

from __future__ import annotations

import math

from policies.compiled import keys_kernel
from policies.kernel_types import Side


@keys_kernel
def keys(side: Side) -> None:
    """Keys of the candidates among P or D."""
    count = len(side.out)
    first = side.turn + side.shift
    for i in range(count):
        if side.out[i] != math.inf:
            side.out[i] = float((i - first % count) % count)
