"""Compiled keys of `policies.families.lmetric`."""

from __future__ import annotations

import math

from policies.compiled import keys_kernel
from policies.families.parts_kernel import (
    BACKLOG_REQUESTS,
    BACKLOG_TOKENS,
    BOOKED,
    RECEIVING,
    RUNNING,
    committed_blocks,
)
from policies.kernel_types import Side


@keys_kernel
def keys(side: Side) -> None:
    """Keys of the candidates among P or D."""
    nodes = side.nodes
    for i in range(len(side.out)):
        if side.out[i] == math.inf:
            continue
        if side.decode == 0:
            work = nodes[i, BACKLOG_TOKENS] + float(side.prompt) - float(side.cached[i])
            side.out[i] = work * (nodes[i, BACKLOG_REQUESTS] + 1.0)
        else:
            sequences = nodes[i, RUNNING] + nodes[i, RECEIVING] + nodes[i, BOOKED]
            side.out[i] = (sequences + 1.0) * (committed_blocks(nodes, i) * float(side.block))
