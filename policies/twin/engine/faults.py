"""Nodes that are gone or do not accept, and links that are slow (docs/twin.md, "Faults"). Kernels."""

from __future__ import annotations

from policies.compiled import kernel
from policies.kernel_types import ViewArrays
from policies.twin.engine.cancel import drop
from policies.twin.engine.columns import (
    FAULTED,
    Q_ACTIVATED,
    Q_DECODE_NODE,
    Q_PREFILL_FINISHED,
    Q_PREFILL_NODE,
    Q_STATUS,
    Q_TRANSFER_DRAINED,
    READY,
)
from policies.twin.engine.links import reshare
from policies.twin.engine.parts import Decode, FaultRows, Int64, Links, Prefill
from policies.twin.engine.prefill import restart_p

FAILED = 3
OUTAGE_P, OUTAGE_D, EGRESS, INGRESS, UPLINK = 0, 1, 2, 3, 4


@kernel
def is_closed(closed: Int64, node: int, least: int, now: int) -> bool:
    """Whether a window of at least this kind (0 drain, 1 outage) holds for the node; Ds are behind the Ps."""
    for k in range(len(closed)):
        if closed[k, 0] == node and closed[k, 3] >= least and closed[k, 1] <= now < closed[k, 2]:
            return True
    return False


@kernel
def close_nodes(closed: Int64, refusing: Int64, view: ViewArrays, known: int) -> None:
    """Nodes that the router knows not to accept, as of `known`, and those that have just refused, are no candidates."""
    prefill = len(view.prefill_open)
    for node in range(len(refusing)):
        if refusing[node] == 1 or is_closed(closed, node, 0, known):
            if node < prefill:
                view.prefill_open[node] = 0
            else:
                view.decode_open[node - prefill] = 0


@kernel
def refuses(closed: Int64, refusing: Int64, p: int, d: int, now: int) -> bool:
    """Whether P or D (-1 = it is not asked) does not accept now; those that do not are marked."""
    refused = False
    for node in (p, d):
        if node >= 0 and is_closed(closed, node, 0, now):
            refusing[node] = 1
            refused = True
    return refused


@kernel
def fault_event(
    fx: FaultRows, pre: Prefill, dec: Decode, x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, now: int
) -> None:
    """The fault that is due now: a node goes, or a link's speed changes."""
    at = counters[FAULTED]
    counters[FAULTED] = at + 1
    kind, node = fx.events[at, 1], fx.events[at, 2]
    if kind >= EGRESS:
        speed = x.egress if kind == EGRESS else x.ingress if kind == INGRESS else x.uplink
        speed[node] = fx.speed[at]
        p, d, u = -1, -1, -1
        if kind == EGRESS:
            p = node
        elif kind == INGRESS:
            d = node
        else:
            u = node
        reshare(x, ps, ds, q, counters, p, d, u, now)
        return
    holds = Q_TRANSFER_DRAINED if x.release_on_activation == 0 else Q_ACTIVATED
    for r in range(fx.first[0], counters[READY]):
        if q[r, Q_STATUS] >= 0 or q[r, Q_PREFILL_NODE] < 0:
            continue
        if kind == OUTAGE_P:
            if q[r, Q_PREFILL_NODE] == node and q[r, holds] < 0:
                drop(pre, dec, x, ps, ds, q, counters, r, FAILED, now)
        elif q[r, Q_DECODE_NODE] == node and q[r, Q_PREFILL_FINISHED] >= 0:
            drop(pre, dec, x, ps, ds, q, counters, r, FAILED, now)
    if kind == OUTAGE_P:
        restart_p(pre, ps, q, counters, node, now)
        x.met[node, :] = 0
    else:
        x.met[:, node] = 0
