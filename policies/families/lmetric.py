"""`lmetric`: a product of work and batch size on each side. docs/adr/0005-lmetric.md says where it comes from."""

from __future__ import annotations

from collections.abc import Sequence

from policies.families.family import Family
from policies.families.params import NoParams
from policies.terms import known
from policies.view import RouterView


def _keys(_: NoParams, view: RouterView, nodes: Sequence[int], decode: bool) -> list[float]:
    """P: (uncached tokens waiting + own) × (prompts + 1). D: (sequences + 1) × committed KV tokens."""
    keys = []
    if not decode:
        prompt = float(view.request.prompt_tokens)
        for p in (view.prefill[i] for i in nodes):
            work = known(p.backlog_tokens) + prompt - float(p.hit_tokens)
            keys.append(work * (known(p.backlog_requests) + 1.0))
        return keys
    for d in (view.decode[j] for j in nodes):
        sequences = known(d.running_requests) + known(d.receiving_requests) + d.booked_requests
        committed = known(d.active_blocks) + known(d.reserved_blocks) + known(d.inflight_blocks) + d.booked_blocks
        keys.append((sequences + 1.0) * (committed * float(view.block_tokens)))
    return keys


FAMILIES = (Family("lmetric", _keys, "policies.families.lmetric_kernel", capacity=True, racks=True),)
