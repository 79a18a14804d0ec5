"""Compiled keys of `policies.families.hit_capacity_health`."""

from __future__ import annotations

import math

from policies.compiled import keys_kernel
from policies.families.parts_kernel import AVAILABLE, DECODE_AGE, PREFILL_AGE, TOTAL, USABLE, committed_blocks
from policies.kernel_types import Side


@keys_kernel
def keys(side: Side) -> None:
    """Keys of the candidates among P or D."""
    nodes, params = side.nodes, side.params
    for i in range(len(side.out)):
        if side.out[i] == math.inf:
            continue
        if side.decode == 0:
            free, age = nodes[i, AVAILABLE] / nodes[i, TOTAL], nodes[i, PREFILL_AGE]
        else:
            free, age = (nodes[i, USABLE] - committed_blocks(nodes, i)) / nodes[i, USABLE], nodes[i, DECODE_AGE]
            free = 0.0 if free < 0.0 else free
        fresh = 1.0 - age / params[3]
        fresh = 0.0 if fresh < 0.0 else fresh
        score = params[0] * (float(side.cached[i]) / float(side.prompt)) + params[1] * free + params[2] * fresh
        side.out[i] = -score
