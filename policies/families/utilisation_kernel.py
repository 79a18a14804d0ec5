"""Compiled keys of `policies.families.utilisation`."""

from __future__ import annotations

import math

from policies.compiled import keys_kernel
from policies.families.parts_kernel import ACTIVE, BACKLOG_TOKENS, USABLE
from policies.kernel_types import Side


@keys_kernel
def keys(side: Side) -> None:
    """Keys of the candidates among P or D."""
    nodes = side.nodes
    for i in range(len(side.out)):
        if side.out[i] != math.inf:
            side.out[i] = nodes[i, BACKLOG_TOKENS] if side.decode == 0 else nodes[i, ACTIVE] / nodes[i, USABLE]
