"""Transfers under way: a heap by (time of the next event, request), and who drains over a port or uplink. Kernels.

A flow stays in its row of `Links.flows` while it lives. Rows that are free, and those that drain over one P's egress,
one D's ingress or one uplink, are linked lists.
"""

from __future__ import annotations

from policies.compiled import kernel
from policies.twin.engine.columns import (
    FLOWS,
    FREE_FLOW,
    NEVER,
    NEXT_FLOW,
    Q_DECODE_NODE,
    Q_PREFILL_NODE,
    X_END,
    X_NEXT,
    X_PLACE,
    X_PREVIOUS,
    X_REQUEST,
)
from policies.twin.engine.parts import Int64, Links


@kernel
def _before(flows: Int64, a: int, b: int) -> bool:
    if flows[a, X_END] != flows[b, X_END]:
        return bool(flows[a, X_END] < flows[b, X_END])
    return bool(flows[a, X_REQUEST] < flows[b, X_REQUEST])


@kernel
def settle(x: Links, counters: Int64, k: int) -> None:
    """Row k's time has changed, or it was put at its place anew: the heap is in order again."""
    flows, heap, size = x.flows, x.flow_heap, counters[FLOWS]
    at = flows[k, X_PLACE]
    while at > 0 and _before(flows, k, heap[(at - 1) >> 1]):
        heap[at] = heap[(at - 1) >> 1]
        flows[heap[at], X_PLACE] = at
        at = (at - 1) >> 1
    while 2 * at + 1 < size:
        down = 2 * at + 1
        if down + 1 < size and _before(flows, heap[down + 1], heap[down]):
            down += 1
        if not _before(flows, heap[down], k):
            break
        heap[at] = heap[down]
        flows[heap[at], X_PLACE] = at
        at = down
    heap[at] = k
    flows[k, X_PLACE] = at
    counters[NEXT_FLOW] = flows[heap[0], X_END]


@kernel
def add_flow(x: Links, counters: Int64, r: int, end: int) -> int:
    """A row for request r, whose next event is at `end`."""
    k = counters[FREE_FLOW]
    counters[FREE_FLOW] = x.flows[k, X_NEXT]
    x.flows[k, X_REQUEST] = r
    x.flows[k, X_END] = end
    x.flows[k, X_PLACE] = counters[FLOWS]
    counters[FLOWS] += 1
    settle(x, counters, k)
    return int(k)


@kernel
def remove_flow(x: Links, counters: Int64, k: int) -> None:
    """Row k is free."""
    at = x.flows[k, X_PLACE]
    counters[FLOWS] -= 1
    last = x.flow_heap[counters[FLOWS]]
    x.flows[k, X_NEXT] = counters[FREE_FLOW]
    counters[FREE_FLOW] = k
    if counters[FLOWS] == 0:
        counters[NEXT_FLOW] = NEVER
    elif last == k:
        counters[NEXT_FLOW] = x.flows[x.flow_heap[0], X_END]
    else:
        x.flows[last, X_PLACE] = at
        settle(x, counters, last)


@kernel
def join_lists(x: Links, q: Int64, k: int) -> None:
    """Row k drains: it stands in the lists of its egress, ingress and uplink."""
    p, d = q[x.flows[k, X_REQUEST], Q_PREFILL_NODE], q[x.flows[k, X_REQUEST], Q_DECODE_NODE]
    for c, at in enumerate((p, d, x.path_uplink[p, d])):
        if at >= 0:
            following = x.first_flow[c, at]
            x.flows[k, X_NEXT + 2 * c] = following
            x.flows[k, X_PREVIOUS + 2 * c] = -1
            if following >= 0:
                x.flows[following, X_PREVIOUS + 2 * c] = k
            x.first_flow[c, at] = k


@kernel
def leave_lists(x: Links, q: Int64, k: int) -> None:
    """Row k does not drain any longer."""
    p, d = q[x.flows[k, X_REQUEST], Q_PREFILL_NODE], q[x.flows[k, X_REQUEST], Q_DECODE_NODE]
    for c, at in enumerate((p, d, x.path_uplink[p, d])):
        if at >= 0:
            following, before = x.flows[k, X_NEXT + 2 * c], x.flows[k, X_PREVIOUS + 2 * c]
            if following >= 0:
                x.flows[following, X_PREVIOUS + 2 * c] = before
            if before >= 0:
                x.flows[before, X_NEXT + 2 * c] = following
            else:
                x.first_flow[c, at] = following
