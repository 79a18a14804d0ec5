"""`power_of_two`: of two candidates drawn at random the one that holds less KV.

As in SGLang's gateway (`power_of_two.rs`): where a sample of one of the two is missing, both are compared by the
router's own requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from policies.draws import two_of
from policies.families.family import Family
from policies.families.params import NoParams
from policies.terms import known
from policies.view import RouterView

NOT_DRAWN = 1e300


def two_keys(view: RouterView, nodes: Sequence[int], *, decode: bool) -> list[float]:
    """Load of the two that are drawn; the others' keys are out of reach."""
    if len(nodes) < 2:
        return [0.0] * len(nodes)
    drawn = two_of(view.request.tie_seed, len(nodes), decode=decode)
    loads = [kv_usage(view, nodes[at], decode=decode) for at in drawn]
    if any(math.isnan(load) for load in loads):
        loads = [own_requests(view, nodes[at], decode=decode) for at in drawn]
    keys = [NOT_DRAWN] * len(nodes)
    for at, load in zip(drawn, loads, strict=True):
        keys[at] = load
    return keys


def kv_usage(view: RouterView, at: int, *, decode: bool) -> float:
    """Fraction of a node's blocks that are in use or promised, as its last sample shows it."""
    if decode:
        d = view.decode[at]
        return (known(d.active_blocks) + known(d.reserved_blocks) + known(d.inflight_blocks)) / d.usable_blocks
    p = view.prefill[at]
    return 1.0 - known(p.available_blocks) / float(p.total_blocks)


def own_requests(view: RouterView, at: int, *, decode: bool) -> float:
    """This router's requests on a node that have not ended."""
    return view.decode[at].own_requests if decode else view.prefill[at].own_requests


def _keys(_: NoParams, view: RouterView, nodes: Sequence[int], decode: bool) -> list[float]:
    return two_keys(view, nodes, decode=decode)


FAMILIES = (Family("power_of_two", _keys, "policies.families.power_of_two_kernel"),)
