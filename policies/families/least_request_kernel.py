"""Compiled keys of `policies.families.least_request`."""

from __future__ import annotations

import math

from policies.compiled import keys_kernel
from policies.families.parts_kernel import OWN_ON_D, OWN_PROMPTS
from policies.kernel_types import Side


@keys_kernel
def keys(side: Side) -> None:
    """Keys of the candidates among P or D."""
    for i in range(len(side.out)):
        if side.out[i] != math.inf:
            side.out[i] = side.nodes[i, OWN_PROMPTS] if side.decode == 0 else side.nodes[i, OWN_ON_D]
