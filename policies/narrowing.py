"""Which nodes a decision looks at: a P that has computed the prompt stands alone, and of many nodes some are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from policies.mixing import decode_drawn, prefill_drawn
from policies.policy import Policy
from policies.scoring import decode_rule, prefill_rule
from policies.terms import estimated_blocks
from policies.view import PrefillView, RouterView

Closed = dict[tuple[int, int], str]
"""Nodes that were closed, as `Decision.excluded` names them, and why."""


def narrowed(policy: Policy, view: RouterView) -> tuple[RouterView, Closed]:
    """The view with the nodes closed that this decision does not look at."""
    at = view.request.prefilled_on
    closed: Closed = {}
    prefill, decode = list(view.prefill), list(view.decode)
    if at is not None:
        closed |= {(i, -1): "prefill_elsewhere" for i in range(len(prefill)) if i != at}
        prefill[at] = _computed(prefill[at])
    elif policy.draws_p > 0:
        open_p = [i for i, node in enumerate(prefill) if prefill_rule(view, node) is None]
        left = _left_out(open_p, policy.draws_p, [prefill_drawn(view.request.tie_seed, i) for i in open_p])
        closed |= {(i, -1): "prefill_not_drawn" for i in left}
    if policy.draws_d > 0:
        open_d = [j for j, node in enumerate(decode) if decode_rule(node, estimated_blocks(view, node)) is None]
        left = _left_out(open_d, policy.draws_d, [decode_drawn(view.request.tie_seed, j) for j in open_d])
        closed |= {(-1, j): "decode_not_drawn" for j in left}
    for i, j in closed:
        if j < 0:
            prefill[i] = replace(prefill[i], accepting=False)
        else:
            decode[j] = replace(decode[j], accepting=False)
    return replace(view, prefill=tuple(prefill), decode=tuple(decode)), closed


def _computed(node: PrefillView) -> PrefillView:
    """P as a prompt sees it that has nothing left to do there."""
    return replace(
        node,
        accepting=True,
        compatible=True,
        hit_tokens=0,
        backlog_tokens=0.0,
        backlog_requests=0.0,
        waiting_requests=0.0,
        running_requests=0.0,
        available_blocks=float(node.total_blocks),
        age_s=0.0,
    )


def _left_out(nodes: Sequence[int], draws: int, ranks: Sequence[int]) -> list[int]:
    return [node for _, node in sorted(zip(ranks, nodes, strict=True))[draws:]]
