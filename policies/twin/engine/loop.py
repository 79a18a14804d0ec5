"""The event loop of the compiled twin: docs/twin.md, "Order at one instant". Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import entry_kernel, kernel
from policies.kernel_types import LawArrays, PolicyArrays, PoolArrays, Scratch, ViewArrays
from policies.twin.engine.columns import (
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
    P_QUEUE_HEAD,
    P_QUEUE_TAIL,
    P_QUEUED,
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
)
from policies.twin.engine.decode import decode_boundary
from policies.twin.engine.decode_steps import waits
from policies.twin.engine.lengths import estimate
from policies.twin.engine.links import push_back, transfer_event, wake
from policies.twin.engine.parts import Decode, Int32, Int64, Lengths, Links, Prefill, Recorder, Routers
from policies.twin.engine.prefill import match_blocks, prefill_boundary
from policies.twin.engine.router import decide, take_sample

REJECTED, TOO_LARGE = 1, 2


@kernel
def _place(
    rt: Routers, cache: Int32, ids: Int32, ps: Int64, rs: Int64, q: Int64, block: int, r: int, p: int, d: int, now: int
) -> None:
    """Request r goes to (P, D): it joins P's queue and its router books it."""
    q[r, Q_PREFILL_NODE] = p
    q[r, Q_DECODE_NODE] = d
    expected_new = q[r, Q_PROMPT] - match_blocks(cache, ids, q, block, p, r) * block
    q[r, Q_EXPECTED_NEW] = expected_new
    q[r, Q_REST] = q[r, Q_PROMPT]
    ps[p, P_BACKLOG_TOKENS] += expected_new
    ps[p, P_BACKLOG_REQUESTS] += 1
    push_back(ps, p, P_QUEUE_HEAD, P_QUEUE_TAIL, q, Q_PQ_NEXT, r)
    ps[p, P_QUEUED] += 1
    wake(ps, p, P_END, now)
    router = r % rt.replicas
    rt.booked[router, rs[router, R_N_BOOKED]] = r
    rs[router, R_N_BOOKED] += 1


@kernel
def _poll(rec: Recorder, moments: Int64, ps: Int64, ds: Int64, row: int) -> None:
    """The recorder's poll: columns as in columns.POLL_P and POLL_D."""
    for p in range(len(ps)):
        out = rec.poll_p[row, p]
        out[0] = ps[p, P_PINNED]
        out[1] = ps[p, P_CACHED]
        out[2] = ps[p, P_HELD]
        out[3] = ps[p, P_QUEUED]
        out[4] = ps[p, P_N_RUNNING]
        out[5] = ps[p, P_BACKLOG_TOKENS]
        out[6] = ps[p, P_SENDING]
        out[7] = ps[p, P_BUSY_NS]
        out[8] = ps[p, P_COMPUTED]
    for d in range(len(ds)):
        to = rec.poll_d[row, d]
        to[0] = ds[d, D_RUNNING_BLOCKS]
        to[1] = ds[d, D_INFLIGHT_BLOCKS]
        to[2] = ds[d, D_QUEUED_BLOCKS]
        to[3] = ds[d, D_QUEUED]
        to[4] = ds[d, D_N_RUNNING]
        to[5] = ds[d, D_TOKENS]
        to[6] = ds[d, D_RECEIVING]
        to[7] = ds[d, D_RECEIVING_TOKENS]
        to[8] = ds[d, D_STEPS]
        to[9] = moments[d, 0]
        to[10] = moments[d, 1]
        to[11] = moments[d, 2]
        to[12] = moments[d, 3]
        to[13] = ds[d, D_GENERATED]
        to[14] = moments[d, 4]
        to[15] = ds[d, D_N_PREEMPTED]


@entry_kernel
def run(
    pre: Prefill,
    dec: Decode,
    x: Links,
    rt: Routers,
    lengths: Lengths,
    rec: Recorder,
    view: ViewArrays,
    scratch: Scratch,
    policy: PolicyArrays,
    seen: LawArrays,
    pool: PoolArrays,
    ps: Int64,
    ds: Int64,
    rs: Int64,
    q: Int64,
    counters: Int64,
) -> None:
    """Replay the whole workload. The parts carry the pool's true laws, `seen` is what the routers believe."""
    requests, prefill_nodes, decode_nodes, routers, polls = len(q), len(ps), len(ds), len(rs), len(rec.poll_time)
    # Not literals: with them every callee would be compiled twice.
    r = int(np.int64(0))
    poll = int(np.int64(0))
    while True:
        # The earliest event; strict comparisons in this order are the order at one instant.
        t = q[r, Q_ARRIVAL] if r < requests else NEVER
        kind = 0
        at = int(np.int64(0))
        if counters[NEXT_FLOW] < t:
            t = counters[NEXT_FLOW]
            kind = 1
        for p in range(prefill_nodes):
            if ps[p, P_END] < t:
                t = ps[p, P_END]
                kind = 2
                at = p
        for d in range(decode_nodes):
            if ds[d, D_END] < t and waits(ds, d):
                t = ds[d, D_END]
                kind = 3
                at = d
        for k in range(routers):
            if rs[k, R_SAMPLE_DONE] < rs[k, R_SAMPLE_END] and rt.sample_time[rs[k, R_SAMPLE_DONE]] < t:
                t = rt.sample_time[rs[k, R_SAMPLE_DONE]]
                kind = 4
                at = k
        if poll < polls and rec.poll_time[poll] < t:
            t = rec.poll_time[poll]
            kind = 5
        # A D that waits for nothing disturbs nobody: it runs on its own up to the event, and before a sample or poll
        # its boundary at the very instant counts too. One that comes to wait on the way is an event of its own.
        limit = t + 1 if kind >= 4 else t
        came_to_wait = False
        for d in range(decode_nodes):
            while ds[d, D_END] < limit and not waits(ds, d):
                decode_boundary(dec, x, ps, ds, q, counters, d, ds[d, D_END], limit)
            came_to_wait = came_to_wait or ds[d, D_END] < limit
        if came_to_wait:
            continue
        if t == NEVER:
            return
        if kind == 3:
            decode_boundary(dec, x, ps, ds, q, counters, at, t, t)
        elif kind == 2:
            prefill_boundary(pre, ps, ds, q, counters, at, t)
        elif kind == 1:
            transfer_event(x, ps, ds, q, counters, t)
        elif kind == 0:
            if len(lengths.base) > 0 and q[r, Q_KIND] != 2:
                estimate(lengths, dec.ended, rs, q, counters, r % rt.replicas, r)
            if q[r, Q_KIND] == 2:
                q[r, Q_STATUS] = TOO_LARGE
            elif q[r, Q_KIND] == 1:
                _place(rt, pre.cache, pre.ids, ps, rs, q, pool.block_tokens, r, q[r, Q_FORCED_P], q[r, Q_FORCED_D], t)
            else:
                # fmt: off
                pair = decide(
                    rt, rec, view, scratch, policy, seen, pool, pre.cache, pre.ids, x.own_flows,
                    ps, ds, rs, q, counters, r, t,
                )
                # fmt: on
                if pair < 0:
                    q[r, Q_STATUS] = REJECTED
                else:
                    p = pair // decode_nodes
                    d = pair % decode_nodes
                    rt.predicted[r, 0] = scratch.predicted_ttft_s[p, d]
                    rt.predicted[r, 1] = scratch.predicted_tpot_s[p, d]
                    _place(rt, pre.cache, pre.ids, ps, rs, q, pool.block_tokens, r, p, d, t)
            r += 1
        elif kind == 4:
            slot = (rs[at, R_SAMPLE_DONE] - rs[at, R_SAMPLE_FIRST]) % rt.ring_p.shape[1]
            take_sample(rt, pool, ps, ds, rs, at, slot, t)
            rs[at, R_SAMPLE_DONE] += 1
        else:
            _poll(rec, dec.moments, ps, ds, poll)
            poll += 1
