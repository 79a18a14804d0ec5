"""Transfers: fair shares of P's egress, the uplink and D's ingress (docs/twin.md, "Transfer"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.twin.engine.columns import (
    D_DRAINING,
    D_END,
    D_LAND_HEAD,
    D_LAND_TAIL,
    NEVER,
    P_END,
    P_RELEASE_HEAD,
    P_RELEASE_TAIL,
    P_SENDING,
    P_STEP_TOKENS,
    Q_DECODE_NODE,
    Q_LAND_NEXT,
    Q_PREFILL_FINISHED,
    Q_PREFILL_NODE,
    Q_PREFILL_STARTED,
    Q_PROMPT,
    Q_RELEASE_NEXT,
    Q_SENT,
    Q_SHARED,
    Q_TRANSFER_DRAINED,
    Q_TRANSFER_FINISHED,
    Q_TRANSFER_STARTED,
    SHARED,
    X_END,
    X_NEXT,
    X_PHASE,
    X_REQUEST,
    X_SINCE,
)
from policies.twin.engine.flows import add_flow, join_lists, leave_lists, remove_flow, settle
from policies.twin.engine.parts import Int64, Links

SHAKING, DRAINING, DRAINED = 2, 0, 1
"""Phases of a flow."""


@kernel
def mix(x: np.uint64) -> np.uint64:
    """One splitmix64 step."""
    z = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def draw(seed: np.uint64, component: int, a: int, b: int) -> np.uint64:
    """The 64 random bits of (seed, component, a, b)."""
    return mix(mix(mix(mix(seed) ^ np.uint64(component)) ^ np.uint64(a)) ^ np.uint64(b))


@kernel
def duration_ns(seconds: float) -> np.int64:
    """Whole nanoseconds of a duration, at least 1."""
    ns = np.int64(np.floor(seconds * 1e9 + 0.5))
    return ns if ns > 1 else np.int64(1)


@kernel
def push_back(nodes: Int64, node: int, head: int, tail: int, q: Int64, following: int, r: int) -> None:
    """Append request r to a node's linked list; head, tail and following are columns."""
    q[r, following] = -1
    if nodes[node, head] < 0:
        nodes[node, head] = r
    else:
        q[nodes[node, tail], following] = r
    nodes[node, tail] = r


@kernel
def take_out(nodes: Int64, node: int, head: int, tail: int, q: Int64, following: int, r: int) -> None:
    """Remove request r from a node's linked list; tail -1 = the list has none."""
    before = np.int64(-1)
    at = nodes[node, head]
    while at != r:
        before = at
        at = q[at, following]
    if before < 0:
        nodes[node, head] = q[r, following]
    else:
        q[before, following] = q[r, following]
    if tail >= 0 and nodes[node, tail] == r:
        nodes[node, tail] = before


@kernel
def wake(nodes: Int64, node: int, end: int, now: int) -> None:
    """An idle node has a boundary now; `end` is the column of its next boundary."""
    if nodes[node, end] == NEVER:
        nodes[node, end] = now


@kernel
def wake_prefill(ps: Int64, p: int, now: int) -> None:
    """An idle P has a boundary now; it may have had one later, for its cache."""
    if ps[p, P_STEP_TOKENS] == 0:
        ps[p, P_END] = min(now, ps[p, P_END])


@kernel
def queue_release(ps: Int64, q: Int64, r: int, now: int) -> None:
    """P may free request r's KV at its next boundary; an idle P has one now."""
    p = q[r, Q_PREFILL_NODE]
    push_back(ps, p, P_RELEASE_HEAD, P_RELEASE_TAIL, q, Q_RELEASE_NEXT, r)
    wake_prefill(ps, p, now)


@kernel
def _rate(x: Links, ps: Int64, ds: Int64, p: int, d: int) -> float:
    """Bytes per ns of a draining flow of (P, D)."""
    sending, draining = ps[p, P_SENDING], ds[d, D_DRAINING]
    if x.alone == 1:
        sending, draining = 1, 1
    rate: float = x.egress[p] / sending
    u = x.path_uplink[p, d]
    if u >= 0:
        rate = min(rate, x.uplink[u] / (1 if x.alone == 1 else x.on_uplink[u]))
    rate = min(rate, x.ingress[d] / draining)
    rate *= x.efficiency[x.path_kind[p, d]]
    return rate


@kernel
def _rerate(x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, k: int, now: int) -> None:
    """The flow in row k has a new rate, if that is another one."""
    flows, rates = x.flows, x.flow_rates
    r = flows[k, X_REQUEST]
    rate = _rate(x, ps, ds, q[r, Q_PREFILL_NODE], q[r, Q_DECODE_NODE])
    if rate != rates[k, 1]:
        rest = rates[k, 0] - rates[k, 1] * np.float64(now - flows[k, X_SINCE])
        rates[k, 0] = rest if rest > 0.0 else 0.0
        flows[k, X_SINCE] = now
        rates[k, 1] = rate
        flows[k, X_END] = now + np.int64(np.floor(rates[k, 0] / rate + 0.5))
        counters[SHARED] += 1
        settle(x, counters, k)


@kernel
def reshare(x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, p: int, d: int, u: int, now: int) -> None:
    """New rates for the flows that drain over P's egress, D's ingress or the uplink; -1 = none of these.

    A flow that stands in two of the lists has its new rate after the first.
    """
    for c, at in enumerate((p, d, u)):
        k = x.first_flow[c, at] if at >= 0 else -1
        while k >= 0:
            _rerate(x, ps, ds, q, counters, k, now)
            k = x.flows[k, X_NEXT + 2 * c]


@kernel
def start_transfer(x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, r: int, now: int) -> None:
    """D has reserved: request r's KV starts to drain, after the handshake of a pair that is new."""
    q[r, Q_TRANSFER_STARTED] = now
    q[r, Q_SENT] = q[r, Q_PROMPT] - x.spare * q[r, Q_SHARED] * x.block_tokens
    hidden = x.overlap_frac * np.float64(q[r, Q_PREFILL_FINISHED] - q[r, Q_PREFILL_STARTED])
    k = add_flow(x, counters, r, now)
    x.flows[k, X_PHASE] = SHAKING
    if x.handshake_ns > 0.0 and x.met[q[r, Q_PREFILL_NODE], q[r, Q_DECODE_NODE]] == 0:
        x.met[q[r, Q_PREFILL_NODE], q[r, Q_DECODE_NODE]] = 1
        wait = np.int64(np.floor(x.handshake_ns - hidden + 0.5))
        hidden = np.float64(max(hidden - x.handshake_ns, 0.0))
        if wait > 0:
            x.flows[k, X_END] = now + wait
            settle(x, counters, k)
            return
    _drain(x, ps, ds, q, counters, k, hidden, now)


@kernel
def _drain(x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, k: int, hidden: float, now: int) -> None:
    """The flow in row k starts to drain; what would have left in `hidden` ns has left during the prompt's compute."""
    r = x.flows[k, X_REQUEST]
    p, d = q[r, Q_PREFILL_NODE], q[r, Q_DECODE_NODE]
    u = x.path_uplink[p, d]
    ps[p, P_SENDING] += 1
    ds[d, D_DRAINING] += 1
    if u >= 0:
        x.on_uplink[u] += 1
        x.own_flows[r % x.routers, u] += 1
    noise = 1.0
    if len(x.noise) > 0:
        noise = x.noise[draw(x.seed, 3, r, 0) >> np.uint64(52)]
    if x.alone == 0:
        reshare(x, ps, ds, q, counters, p, d, u, now)
    join_lists(x, q, k)
    size = np.float64(q[r, Q_SENT]) * np.float64(x.kv_bytes_per_token) * x.wire_frac * noise
    rate = _rate(x, ps, ds, p, d)
    rest, last = size - hidden * rate, x.last_frac * size
    x.flow_rates[k, 0] = last if rest < last else rest
    x.flow_rates[k, 1] = rate
    x.flows[k, X_SINCE] = now
    x.flows[k, X_PHASE] = DRAINING
    x.flows[k, X_END] = now + np.int64(np.floor(x.flow_rates[k, 0] / rate + 0.5))
    settle(x, counters, k)


@kernel
def stop_draining(x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, k: int, now: int) -> None:
    """The flow in row k leaves its ports and uplink to the others."""
    r = x.flows[k, X_REQUEST]
    p, d = q[r, Q_PREFILL_NODE], q[r, Q_DECODE_NODE]
    u = x.path_uplink[p, d]
    ps[p, P_SENDING] -= 1
    ds[d, D_DRAINING] -= 1
    if u >= 0:
        x.on_uplink[u] -= 1
        x.own_flows[r % x.routers, u] -= 1
    leave_lists(x, q, k)
    if x.alone == 0:
        reshare(x, ps, ds, q, counters, p, d, u, now)


@kernel
def lands_on(x: Links, q: Int64) -> int:
    """The D where the next transfer event makes KV visible, -1 = it does not."""
    k = x.flow_heap[0]
    return int(q[x.flows[k, X_REQUEST], Q_DECODE_NODE]) if x.flows[k, X_PHASE] == DRAINED else -1


@kernel
def transfer_event(x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, now: int) -> None:
    """The next transfer event, due now: a handshake is over, a flow is drained, or its KV becomes visible."""
    k = x.flow_heap[0]
    r = x.flows[k, X_REQUEST]
    p, d = q[r, Q_PREFILL_NODE], q[r, Q_DECODE_NODE]
    if x.flows[k, X_PHASE] == SHAKING:
        _drain(x, ps, ds, q, counters, k, 0.0, now)
        return
    if x.flows[k, X_PHASE] == DRAINING:
        q[r, Q_TRANSFER_DRAINED] = now
        stop_draining(x, ps, ds, q, counters, k, now)
        if x.release_on_activation == 0:
            queue_release(ps, q, r, now)
        blocks = (q[r, Q_SENT] + x.block_tokens - 1) // x.block_tokens
        setup = x.descriptor_s * (x.descriptors_per_block * np.float64(blocks))
        x.flows[k, X_PHASE] = DRAINED
        x.flows[k, X_END] = now + np.int64(np.floor((x.alpha_s[x.path_kind[p, d]] + setup) * 1e9 + 0.5))
        settle(x, counters, k)
        return
    remove_flow(x, counters, k)
    q[r, Q_TRANSFER_FINISHED] = now
    push_back(ds, d, D_LAND_HEAD, D_LAND_TAIL, q, Q_LAND_NEXT, r)
    wake(ds, d, D_END, now)
