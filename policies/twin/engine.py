"""The event loop of the compiled twin: docs/twin.md, "Order at one instant". Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import entry_kernel, kernel
from policies.kernel_types import LawArrays, PolicyArrays, PoolArrays, Scratch, ViewArrays
from policies.twin.engine_decode import decode_boundary, waits
from policies.twin.engine_links import push_back, transfer_event, wake
from policies.twin.engine_prefill import match_blocks, prefill_boundary
from policies.twin.engine_router import decide, take_sample
from policies.twin.engine_state import (
    D_END,
    D_GENERATED,
    D_INFLIGHT_BLOCKS,
    D_N_PREEMPTED,
    D_N_RUNNING,
    D_QUEUED,
    D_QUEUED_BLOCKS,
    D_RECEIVING,
    D_RECEIVING_TOKENS,
    D_RUNNING_BLOCKS,
    D_STEPS,
    D_TOKENS,
    NEVER,
    NEXT_FLOW,
    P_BACKLOG_REQUESTS,
    P_BACKLOG_TOKENS,
    P_BUSY_NS,
    P_CACHED,
    P_COMPUTED,
    P_END,
    P_HELD,
    P_N_RUNNING,
    P_PINNED,
    P_QUEUED,
    P_QUEUE_HEAD,
    P_QUEUE_TAIL,
    P_SENDING,
    Q_ARRIVAL,
    Q_DECODE_NODE,
    Q_EXPECTED_NEW,
    Q_FORCED_D,
    Q_FORCED_P,
    Q_KIND,
    Q_PQ_NEXT,
    Q_PREFILL_NODE,
    Q_PROMPT,
    Q_REST,
    Q_STATUS,
    R_N_BOOKED,
    R_SAMPLE_DONE,
    R_SAMPLE_END,
    R_SAMPLE_FIRST,
    Memory,
    Recorder,
    Rules,
)

REJECTED, TOO_LARGE = 1, 2


@kernel
def _arrive(
    m: Memory,
    rec: Recorder,
    view: ViewArrays,
    scratch: Scratch,
    rules: Rules,
    policy: PolicyArrays,
    seen: LawArrays,
    pool: PoolArrays,
    r: int,
    now: int,
) -> None:
    """One request arrives: it is refused, or joins the queue of its P and its router books it."""
    if m.q[r, Q_KIND] == 2:
        m.q[r, Q_STATUS] = TOO_LARGE
        return
    decode_nodes = len(m.ds)
    if m.q[r, Q_KIND] == 1:
        p = m.q[r, Q_FORCED_P]
        d = m.q[r, Q_FORCED_D]
    else:
        pair = decide(m, rec, view, scratch, rules, policy, seen, pool, r, now)
        if pair < 0:
            m.q[r, Q_STATUS] = REJECTED
            return
        p = pair // decode_nodes
        d = pair % decode_nodes
        m.predicted[r, 0] = scratch.predicted_ttft_s[p, d]
        m.predicted[r, 1] = scratch.predicted_tpot_s[p, d]
    m.q[r, Q_PREFILL_NODE] = p
    m.q[r, Q_DECODE_NODE] = d
    expected_new = m.q[r, Q_PROMPT] - match_blocks(m, pool, p, r) * pool.block_tokens
    m.q[r, Q_EXPECTED_NEW] = expected_new
    m.q[r, Q_REST] = m.q[r, Q_PROMPT]
    m.ps[p, P_BACKLOG_TOKENS] += expected_new
    m.ps[p, P_BACKLOG_REQUESTS] += 1
    push_back(m.ps, p, P_QUEUE_HEAD, P_QUEUE_TAIL, m.q, Q_PQ_NEXT, r)
    m.ps[p, P_QUEUED] += 1
    wake(m.ps, p, P_END, now)
    router = r % rules.routers
    m.booked[router, m.rs[router, R_N_BOOKED]] = r
    m.rs[router, R_N_BOOKED] += 1


@kernel
def _poll(m: Memory, rec: Recorder, row: int) -> None:
    """The recorder's poll: columns as in engine_state.POLL_P and POLL_D."""
    for p in range(len(m.ps)):
        out = rec.poll_p[row, p]
        out[0] = m.ps[p, P_PINNED]
        out[1] = m.ps[p, P_CACHED]
        out[2] = m.ps[p, P_HELD]
        out[3] = m.ps[p, P_QUEUED]
        out[4] = m.ps[p, P_N_RUNNING]
        out[5] = m.ps[p, P_BACKLOG_TOKENS]
        out[6] = m.ps[p, P_SENDING]
        out[7] = m.ps[p, P_BUSY_NS]
        out[8] = m.ps[p, P_COMPUTED]
    for d in range(len(m.ds)):
        to = rec.poll_d[row, d]
        to[0] = m.ds[d, D_RUNNING_BLOCKS]
        to[1] = m.ds[d, D_INFLIGHT_BLOCKS]
        to[2] = m.ds[d, D_QUEUED_BLOCKS]
        to[3] = m.ds[d, D_QUEUED]
        to[4] = m.ds[d, D_N_RUNNING]
        to[5] = m.ds[d, D_TOKENS]
        to[6] = m.ds[d, D_RECEIVING]
        to[7] = m.ds[d, D_RECEIVING_TOKENS]
        to[8] = m.ds[d, D_STEPS]
        to[9] = m.moments[d, 0]
        to[10] = m.moments[d, 1]
        to[11] = m.moments[d, 2]
        to[12] = m.moments[d, 3]
        to[13] = m.ds[d, D_GENERATED]
        to[14] = m.moments[d, 4]
        to[15] = m.ds[d, D_N_PREEMPTED]


@entry_kernel
def run(
    m: Memory,
    rec: Recorder,
    view: ViewArrays,
    scratch: Scratch,
    rules: Rules,
    policy: PolicyArrays,
    laws: LawArrays,
    seen: LawArrays,
    pool: PoolArrays,
) -> None:
    """Replay the whole workload. `laws` drive the pool, `seen` are what the router believes."""
    requests = len(m.q)
    prefill_nodes = len(m.ps)
    decode_nodes = len(m.ds)
    routers = rules.routers
    polls = len(rec.poll_time)
    r = 0
    poll = 0
    while True:
        # The earliest event; strict comparisons in this order are the order at one instant.
        t = m.q[r, Q_ARRIVAL] if r < requests else NEVER
        kind = 0
        at = 0
        if m.counters[NEXT_FLOW] < t:
            t = m.counters[NEXT_FLOW]
            kind = 1
        for p in range(prefill_nodes):
            if m.ps[p, P_END] < t:
                t = m.ps[p, P_END]
                kind = 2
                at = p
        horizon = t
        for d in range(decode_nodes):
            if m.ds[d, D_END] < t:
                t = m.ds[d, D_END]
                kind = 3
                at = d
            # A D that runs on its own cannot disturb another: only one that waits bounds how far others run ahead.
            if m.ds[d, D_END] < horizon and waits(m, d):
                horizon = m.ds[d, D_END]
        for k in range(routers):
            if m.rs[k, R_SAMPLE_DONE] < m.rs[k, R_SAMPLE_END]:
                due = m.sample_time[m.rs[k, R_SAMPLE_DONE]]
                horizon = min(horizon, due)
                if due < t:
                    t = due
                    kind = 4
                    at = k
        if poll < polls:
            horizon = min(horizon, rec.poll_time[poll])
            if rec.poll_time[poll] < t:
                t = rec.poll_time[poll]
                kind = 5
        if t == NEVER:
            return
        if kind == 0:
            _arrive(m, rec, view, scratch, rules, policy, seen, pool, r, t)
            r += 1
        elif kind == 1:
            transfer_event(m, rules, laws, pool, t)
        elif kind == 2:
            prefill_boundary(m, rec, rules, laws, pool, at, t)
        elif kind == 3:
            decode_boundary(m, rec, rules, laws, pool, at, t, horizon)
        elif kind == 4:
            index = m.rs[at, R_SAMPLE_DONE]
            slot = (index - m.rs[at, R_SAMPLE_FIRST]) % m.ring_p.shape[1]
            take_sample(m, pool, at, slot, t)
            m.rs[at, R_SAMPLE_DONE] += 1
        else:
            _poll(m, rec, poll)
            poll += 1
