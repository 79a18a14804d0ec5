"""`least_request`: the P and the D with the fewest of this router's own requests."""

from __future__ import annotations

from collections.abc import Sequence

from policies.families.family import Family
from policies.families.params import NoParams
from policies.view import RouterView


def _keys(_: NoParams, view: RouterView, nodes: Sequence[int], decode: bool) -> list[float]:
    """P: own prompts that it has not computed. D: own requests that have not ended."""
    if decode:
        return [view.decode[j].own_requests for j in nodes]
    return [view.prefill[i].own_prompts for i in nodes]


FAMILIES = (Family("least_request", _keys, "policies.families.least_request_kernel"),)
