"""`lowest_utilisation` and, after the capacity rule, `gated_utilisation`: the emptiest D, the P with least work."""

from __future__ import annotations

from collections.abc import Sequence

from policies.families.family import Family
from policies.families.params import NoParams
from policies.terms import known
from policies.view import RouterView


def _keys(_: NoParams, view: RouterView, nodes: Sequence[int], decode: bool) -> list[float]:
    """P: backlog tokens. D: active / usable blocks."""
    if decode:
        return [known(view.decode[j].active_blocks) / view.decode[j].usable_blocks for j in nodes]
    return [known(view.prefill[i].backlog_tokens) for i in nodes]


_KERNEL = "policies.families.utilisation_kernel"
FAMILIES = (
    Family("lowest_utilisation", _keys, _KERNEL, racks=True),
    Family("gated_utilisation", _keys, _KERNEL, capacity=True, racks=True),
)
