"""Compiled keys of `policies.families.power_of_two`."""

from __future__ import annotations

import math

from policies.compiled import kernel, keys_kernel
from policies.families.draws_kernel import two_of
from policies.families.parts_kernel import (
    ACTIVE,
    AVAILABLE,
    INFLIGHT,
    OWN_ON_D,
    OWN_ON_P,
    RESERVED,
    TOTAL,
    USABLE,
)
from policies.families.power_of_two import NOT_DRAWN
from policies.kernel_types import Float64, Side


@kernel
def kv_usage(nodes: Float64, i: int, decode: int) -> float:
    """Fraction of a node's blocks that are in use or promised."""
    if decode == 1:
        return float((nodes[i, ACTIVE] + nodes[i, RESERVED] + nodes[i, INFLIGHT]) / nodes[i, USABLE])
    return float(1.0 - nodes[i, AVAILABLE] / nodes[i, TOTAL])


@kernel
def own_requests(nodes: Float64, i: int, decode: int) -> float:
    """This router's requests on a node that have not ended."""
    return float(nodes[i, OWN_ON_D] if decode == 1 else nodes[i, OWN_ON_P])


@kernel
def two_keys(side: Side) -> None:
    """Load of the two candidates that are drawn; the others' keys are out of reach."""
    count = 0
    for value in side.out:
        count += 0 if value == math.inf else 1
    if count < 2:
        return
    first, second = two_of(side.seed, count, side.decode)
    place, a, b = 0, 0, 0
    for i in range(len(side.out)):
        if side.out[i] == math.inf:
            continue
        if place == first:
            a = i
        elif place == second:
            b = i
        side.out[i] = NOT_DRAWN
        place += 1
    side.out[a] = kv_usage(side.nodes, a, side.decode)
    side.out[b] = kv_usage(side.nodes, b, side.decode)
    if math.isnan(side.out[a]) or math.isnan(side.out[b]):
        side.out[a] = own_requests(side.nodes, a, side.decode)
        side.out[b] = own_requests(side.nodes, b, side.decode)


@keys_kernel
def keys(side: Side) -> None:
    """Keys of the candidates among P or D."""
    two_keys(side)
