"""Transfers: fair shares of P's egress, the uplink and D's ingress (docs/twin.md, "Transfer"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.kernel_types import LawArrays, PoolArrays
from policies.twin.engine_state import (
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
    Int64,
    Memory,
    Rules,
)


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
def duration_ns(seconds: float) -> int:
    """Whole nanoseconds of a duration, at least 1."""
    ns = np.int64(np.floor(seconds * 1e9 + 0.5))
    return ns if ns > 1 else np.int64(1)


@kernel
def push_back(nodes: Int64, node: int, head: int, tail: int, requests: Int64, following: int, request: int) -> None:
    """Append a request to a node's linked list; head, tail and following are columns."""
    requests[request, following] = -1
    if nodes[node, head] < 0:
        nodes[node, head] = request
    else:
        requests[nodes[node, tail], following] = request
    nodes[node, tail] = request


@kernel
def wake(nodes: Int64, node: int, end: int, now: int) -> None:
    """An idle node has a boundary now; `end` is the column of its next boundary."""
    if nodes[node, end] == NEVER:
        nodes[node, end] = now


@kernel
def _rate(m: Memory, rules: Rules, laws: LawArrays, pool: PoolArrays, p: int, d: int) -> float:
    rate = rules.egress[p] / m.ps[p, P_SENDING]
    u = pool.path_uplink[p, d]
    if u >= 0:
        rate = min(rate, rules.uplink[u] / m.on_u[u])
    rate = min(rate, rules.ingress[d] / m.ds[d, D_DRAINING])
    return rate * laws.efficiency[pool.path_kind[p, d]]


@kernel
def _reshare(
    m: Memory, rules: Rules, laws: LawArrays, pool: PoolArrays, p: int, d: int, u: int, skip: int, now: int
) -> None:
    """New rates for the draining flows that share a resource with path (p, d), and the next transfer event."""
    best = NEVER
    for k in range(m.counters[FLOWS]):
        r = m.flows[k, X_REQUEST]
        if m.flows[k, X_PHASE] == 0 and r != skip:
            fp = m.q[r, Q_PREFILL_NODE]
            fd = m.q[r, Q_DECODE_NODE]
            fu = pool.path_uplink[fp, fd]
            if fp == p or fd == d or (u >= 0 and fu == u):
                rate = _rate(m, rules, laws, pool, fp, fd)
                if rate != m.flow_rates[k, 1]:
                    rest = m.flow_rates[k, 0] - m.flow_rates[k, 1] * np.float64(now - m.flows[k, X_SINCE])
                    m.flow_rates[k, 0] = rest if rest > 0.0 else 0.0
                    m.flows[k, X_SINCE] = now
                    m.flow_rates[k, 1] = rate
                    m.flows[k, X_END] = now + np.int64(np.floor(m.flow_rates[k, 0] / rate + 0.5))
                    m.counters[SHARED] += 1
        best = min(best, m.flows[k, X_END])
    m.counters[NEXT_FLOW] = best


@kernel
def start_transfer(m: Memory, rules: Rules, laws: LawArrays, pool: PoolArrays, r: int, now: int) -> None:
    """D has reserved: request r's KV starts to drain."""
    p = m.q[r, Q_PREFILL_NODE]
    d = m.q[r, Q_DECODE_NODE]
    u = pool.path_uplink[p, d]
    m.q[r, Q_TRANSFER_STARTED] = now
    m.ps[p, P_SENDING] += 1
    m.ds[d, D_DRAINING] += 1
    if u >= 0:
        m.on_u[u] += 1
        m.uplink_flows[r % rules.routers, u] += 1
    noise = 1.0
    if len(rules.noise_x) > 0:
        noise = rules.noise_x[draw(rules.seed, 3, r, 0) >> np.uint64(52)]
    k = m.counters[FLOWS]
    m.counters[FLOWS] = k + 1
    m.flows[k, X_REQUEST] = r
    m.flows[k, X_PHASE] = 0
    m.flow_rates[k, 0] = np.float64(m.q[r, Q_PROMPT]) * np.float64(pool.kv_bytes_per_token) * noise
    m.flows[k, X_SINCE] = now
    m.flow_rates[k, 1] = _rate(m, rules, laws, pool, p, d)
    m.flows[k, X_END] = now + np.int64(np.floor(m.flow_rates[k, 0] / m.flow_rates[k, 1] + 0.5))
    _reshare(m, rules, laws, pool, p, d, u, r, now)


@kernel
def queue_release(m: Memory, r: int, now: int) -> None:
    """P may free request r's KV at its next boundary; an idle P has one now."""
    p = m.q[r, Q_PREFILL_NODE]
    push_back(m.ps, p, P_RELEASE_HEAD, P_RELEASE_TAIL, m.q, Q_RELEASE_NEXT, r)
    wake(m.ps, p, P_END, now)


@kernel
def _remove(m: Memory, k: int) -> None:
    last = m.counters[FLOWS] - 1
    m.counters[FLOWS] = last
    m.flows[k, X_REQUEST] = m.flows[last, X_REQUEST]
    m.flow_rates[k, 0] = m.flow_rates[last, 0]
    m.flow_rates[k, 1] = m.flow_rates[last, 1]
    m.flows[k, X_SINCE] = m.flows[last, X_SINCE]
    m.flows[k, X_END] = m.flows[last, X_END]
    m.flows[k, X_PHASE] = m.flows[last, X_PHASE]


@kernel
def _land(m: Memory, r: int, now: int) -> None:
    d = m.q[r, Q_DECODE_NODE]
    m.q[r, Q_TRANSFER_FINISHED] = now
    push_back(m.ds, d, D_LAND_HEAD, D_LAND_TAIL, m.q, Q_LAND_NEXT, r)
    wake(m.ds, d, D_END, now)


@kernel
def transfer_event(m: Memory, rules: Rules, laws: LawArrays, pool: PoolArrays, now: int) -> None:
    """The next transfer event, due now: a flow is drained, or its KV becomes visible."""
    at = -1
    for k in range(m.counters[FLOWS]):
        if m.flows[k, X_END] == now and (at < 0 or m.flows[k, X_REQUEST] < m.flows[at, X_REQUEST]):
            at = k
    r = m.flows[at, X_REQUEST]
    p = m.q[r, Q_PREFILL_NODE]
    d = m.q[r, Q_DECODE_NODE]
    u = pool.path_uplink[p, d]
    if m.flows[at, X_PHASE] == 1:
        _remove(m, at)
        _land(m, r, now)
        best = NEVER
        for k in range(m.counters[FLOWS]):
            best = min(best, m.flows[k, X_END])
        m.counters[NEXT_FLOW] = best
        return
    m.q[r, Q_TRANSFER_DRAINED] = now
    m.ps[p, P_SENDING] -= 1
    m.ds[d, D_DRAINING] -= 1
    if u >= 0:
        m.on_u[u] -= 1
        m.uplink_flows[r % rules.routers, u] -= 1
    alpha = rules.alpha_ns[pool.path_kind[p, d]]
    if alpha > 0:
        m.flows[at, X_PHASE] = 1
        m.flows[at, X_END] = now + alpha
    else:
        _remove(m, at)
        _land(m, r, now)
    if rules.release_on_activation == 0:
        queue_release(m, r, now)
    _reshare(m, rules, laws, pool, p, d, u, -1, now)
