"""`lmetric`: a product of work and batch size on each side. docs/adr/0005-lmetric.md says where it comes from."""

from __future__ import annotations

from policies.families.apart import NodeKeys
from policies.terms import known
from policies.view import RouterView


def lmetric_keys(view: RouterView) -> NodeKeys:
    """P: (uncached tokens waiting + own) × (prompts + 1). D: (sequences + 1) × committed KV tokens."""
    prefill = [
        (known(p.backlog_tokens) + float(view.request.prompt_tokens) - float(p.hit_tokens))
        * (known(p.backlog_requests) + 1.0)
        for p in view.prefill
    ]
    decode = []
    for d in view.decode:
        sequences = known(d.running_requests) + known(d.receiving_requests) + d.booked_requests
        committed = known(d.active_blocks) + known(d.reserved_blocks) + known(d.inflight_blocks) + d.booked_blocks
        decode.append((sequences + 1.0) * (committed * float(view.block_tokens)))
    return prefill, decode
