"""`lowest_utilisation` and, after the capacity rule, `gated_utilisation`: the emptiest D, the P with least work."""

from __future__ import annotations

from policies.families.apart import NodeKeys
from policies.terms import known
from policies.view import RouterView


def utilisation_keys(view: RouterView) -> NodeKeys:
    """P: backlog tokens. D: active / usable blocks."""
    prefill = [known(p.backlog_tokens) for p in view.prefill]
    return prefill, [known(d.active_blocks) / d.usable_blocks for d in view.decode]
