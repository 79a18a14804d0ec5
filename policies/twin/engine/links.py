"""Transfers: fair shares of P's egress, the uplink and D's ingress (docs/twin.md, "Transfer"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.twin.engine.columns import (
    D_DRAINING,
    D_END,
    D_LAND_HEAD,
    D_LAND_TAIL,
    FLOWS,
    NEVER,
    NEXT_FLOW,
    P_END,
    P_RELEASE_HEAD,
    P_RELEASE_TAIL,
    P_SENDING,
    Q_DECODE_NODE,
    Q_LAND_NEXT,
    Q_PREFILL_NODE,
    Q_PROMPT,
    Q_RELEASE_NEXT,
    Q_TRANSFER_DRAINED,
    Q_TRANSFER_FINISHED,
    Q_TRANSFER_STARTED,
    SHARED,
    X_END,
    X_PHASE,
    X_REQUEST,
    X_SINCE,
)
from policies.twin.engine.parts import Int64, Links


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
def wake(nodes: Int64, node: int, end: int, now: int) -> None:
    """An idle node has a boundary now; `end` is the column of its next boundary."""
    if nodes[node, end] == NEVER:
        nodes[node, end] = now


@kernel
def queue_release(ps: Int64, q: Int64, r: int, now: int) -> None:
    """P may free request r's KV at its next boundary; an idle P has one now."""
    p = q[r, Q_PREFILL_NODE]
    push_back(ps, p, P_RELEASE_HEAD, P_RELEASE_TAIL, q, Q_RELEASE_NEXT, r)
    wake(ps, p, P_END, now)


@kernel
def _rate(x: Links, ps: Int64, ds: Int64, p: int, d: int) -> float:
    rate: float = x.egress[p] / ps[p, P_SENDING]
    u = x.path_uplink[p, d]
    if u >= 0:
        rate = min(rate, x.uplink[u] / x.on_uplink[u])
    rate = min(rate, x.ingress[d] / ds[d, D_DRAINING])
    rate *= x.efficiency[x.path_kind[p, d]]
    return rate


@kernel
def _reshare(
    x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, p: int, d: int, u: int, skip: int, now: int
) -> None:
    """New rates for the draining flows that share a resource with path (p, d), and the next transfer event."""
    flows, rates = x.flows, x.flow_rates
    best = NEVER
    for k in range(counters[FLOWS]):
        r = flows[k, X_REQUEST]
        if flows[k, X_PHASE] == 0 and r != skip:
            fp = q[r, Q_PREFILL_NODE]
            fd = q[r, Q_DECODE_NODE]
            if fp == p or fd == d or (u >= 0 and x.path_uplink[fp, fd] == u):
                rate = _rate(x, ps, ds, fp, fd)
                if rate != rates[k, 1]:
                    rest = rates[k, 0] - rates[k, 1] * np.float64(now - flows[k, X_SINCE])
                    rates[k, 0] = rest if rest > 0.0 else 0.0
                    flows[k, X_SINCE] = now
                    rates[k, 1] = rate
                    flows[k, X_END] = now + np.int64(np.floor(rates[k, 0] / rate + 0.5))
                    counters[SHARED] += 1
        best = min(best, flows[k, X_END])
    counters[NEXT_FLOW] = best


@kernel
def start_transfer(x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, r: int, now: int) -> None:
    """D has reserved: request r's KV starts to drain."""
    flows, rates = x.flows, x.flow_rates
    p = q[r, Q_PREFILL_NODE]
    d = q[r, Q_DECODE_NODE]
    u = x.path_uplink[p, d]
    q[r, Q_TRANSFER_STARTED] = now
    ps[p, P_SENDING] += 1
    ds[d, D_DRAINING] += 1
    if u >= 0:
        x.on_uplink[u] += 1
        x.own_flows[r % x.routers, u] += 1
    noise = 1.0
    if len(x.noise) > 0:
        noise = x.noise[draw(x.seed, 3, r, 0) >> np.uint64(52)]
    k = counters[FLOWS]
    counters[FLOWS] = k + 1
    flows[k, X_REQUEST] = r
    flows[k, X_PHASE] = 0
    rates[k, 0] = np.float64(q[r, Q_PROMPT]) * np.float64(x.kv_bytes_per_token) * x.wire_frac * noise
    flows[k, X_SINCE] = now
    rates[k, 1] = _rate(x, ps, ds, p, d)
    flows[k, X_END] = now + np.int64(np.floor(rates[k, 0] / rates[k, 1] + 0.5))
    _reshare(x, ps, ds, q, counters, p, d, u, r, now)


@kernel
def _land(x: Links, ds: Int64, q: Int64, counters: Int64, at: int, now: int) -> None:
    """The flow at a place is over and its KV visible: D has it."""
    flows, rates = x.flows, x.flow_rates
    r = flows[at, X_REQUEST]
    last = counters[FLOWS] - 1
    counters[FLOWS] = last
    for c in range(4):
        flows[at, c] = flows[last, c]
    rates[at, 0] = rates[last, 0]
    rates[at, 1] = rates[last, 1]
    d = q[r, Q_DECODE_NODE]
    q[r, Q_TRANSFER_FINISHED] = now
    push_back(ds, d, D_LAND_HEAD, D_LAND_TAIL, q, Q_LAND_NEXT, r)
    wake(ds, d, D_END, now)


@kernel
def transfer_event(x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, now: int) -> None:
    """The next transfer event, due now: a flow is drained, or its KV becomes visible."""
    flows = x.flows
    at = -1
    for k in range(counters[FLOWS]):
        if flows[k, X_END] == now and (at < 0 or flows[k, X_REQUEST] < flows[at, X_REQUEST]):
            at = k
    r = flows[at, X_REQUEST]
    if flows[at, X_PHASE] == 1:
        _land(x, ds, q, counters, at, now)
        best = NEVER
        for k in range(counters[FLOWS]):
            best = min(best, flows[k, X_END])
        counters[NEXT_FLOW] = best
        return
    p = q[r, Q_PREFILL_NODE]
    d = q[r, Q_DECODE_NODE]
    u = x.path_uplink[p, d]
    q[r, Q_TRANSFER_DRAINED] = now
    ps[p, P_SENDING] -= 1
    ds[d, D_DRAINING] -= 1
    if u >= 0:
        x.on_uplink[u] -= 1
        x.own_flows[r % x.routers, u] -= 1
    blocks = (q[r, Q_PROMPT] + x.block_tokens - 1) // x.block_tokens
    setup = x.descriptor_s * (x.descriptors_per_block * np.float64(blocks))
    alpha = np.int64(np.floor((x.alpha_s[x.path_kind[p, d]] + setup) * 1e9 + 0.5))
    if alpha > 0:
        flows[at, X_PHASE] = 1
        flows[at, X_END] = now + alpha
    else:
        _land(x, ds, q, counters, at, now)
    if x.release_on_activation == 0:
        queue_release(ps, q, r, now)
    _reshare(x, ps, ds, q, counters, p, d, u, -1, now)
