"""Routers: samples, bookings, the view of a decision (docs/twin.md, "What a router sees"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.families.choose_kernel import choose
from policies.kernel_types import LawArrays, PolicyArrays, PoolArrays, Scratch, ViewArrays
from policies.twin.engine.columns import (
    D_FREED,
    D_GENERATED,
    D_INFLIGHT_BLOCKS,
    D_N_RUNNING,
    D_QUEUED_BLOCKS,
    D_RECEIVING,
    D_RECEIVING_TOKENS,
    D_RUNNING_BLOCKS,
    D_TOKENS,
    EXPIRED,
    P_BACKLOG_REQUESTS,
    P_BACKLOG_TOKENS,
    P_PINNED,
    P_SENDING,
    Q_ARRIVAL,
    Q_BOOKING_OVER,
    Q_DECODE_NODE,
    Q_ESTIMATED,
    Q_EXPECTED,
    Q_EXPECTED_NEW,
    Q_PREFILL_NODE,
    Q_PROMPT,
    Q_RECORD,
    Q_SAMPLE,
    Q_SLO_CLASS,
    Q_STATUS,
    Q_TRANSFER_STARTED,
    R_LAST_TIME,
    R_N_BOOKED,
    R_SAMPLE_FIRST,
    R_TURN,
    STALE,
)
from policies.twin.engine.links import draw
from policies.twin.engine.parts import Int32, Int64, Recorder, Routers
from policies.twin.engine.prefill import match_blocks


@kernel
def take_sample(
    rt: Routers, pool: PoolArrays, ps: Int64, ds: Int64, rs: Int64, router: int, slot: int, now: int
) -> None:
    """Every node's state now, into a slot of the router's ring."""
    for p in range(len(ps)):
        row = rt.ring_p[router, slot, p]
        row[0] = ps[p, P_BACKLOG_TOKENS]
        row[1] = ps[p, P_BACKLOG_REQUESTS]
        row[2] = pool.prefill_blocks[p] - ps[p, P_PINNED]
        row[3] = ps[p, P_SENDING]
    last = rs[router, R_LAST_TIME]
    for d in range(len(ds)):
        rates, totals = rt.kv_rates[router, d], rt.totals[router, d]
        if last >= 0 and now > last:
            seconds = np.float64(now - last) / 1e9
            rates[0] = np.float64(ds[d, D_GENERATED] - totals[0]) / np.float64(pool.block_tokens) / seconds
            rates[1] = np.float64(ds[d, D_FREED] - totals[1]) / seconds
        totals[0] = ds[d, D_GENERATED]
        totals[1] = ds[d, D_FREED]
        out = rt.ring_d[router, slot, d]
        out[0] = pool.decode_blocks[d]
        out[1] = ds[d, D_RUNNING_BLOCKS]
        out[2] = 0.0
        out[3] = ds[d, D_INFLIGHT_BLOCKS]
        out[4] = 0.0
        out[5] = ds[d, D_QUEUED_BLOCKS]
        out[6] = ds[d, D_N_RUNNING]
        out[7] = ds[d, D_TOKENS]
        out[8] = ds[d, D_RECEIVING]
        out[9] = ds[d, D_RECEIVING_TOKENS]
        out[10] = rates[0]
        out[11] = rates[1]
    rs[router, R_LAST_TIME] = now


@kernel
def _fill_samples(rt: Routers, view: ViewArrays, pool: PoolArrays, router: int, slot: np.int64, age: float) -> None:
    """View columns from a sample; slot -1: nothing was ever sampled."""
    for p in range(len(view.prefill)):
        row = view.prefill[p]
        for c in range(4):
            row[c] = rt.ring_p[router, slot, p, c] if slot >= 0 else np.nan
        row[4] = age
    for d in range(len(view.decode)):
        out = view.decode[d]
        for c in range(12):
            value = rt.ring_d[router, slot, d, c] if slot >= 0 else np.nan
            out[c if c < 5 else c + 1 if c < 10 else c + 3] = value
        out[0] = pool.decode_blocks[d]
        out[5] = 0.0
        out[11] = 0.0
        out[12] = 0.0
        out[15] = age


@kernel
def _fill_bookings(
    rt: Routers,
    view: ViewArrays,
    rs: Int64,
    q: Int64,
    counters: Int64,
    block: int,
    router: int,
    sampled: np.int64,
    now: int,
) -> None:
    """Add the router's own decisions that the used sample cannot show; forget those that none will need."""
    booked = rt.booked[router]
    kept = 0
    for k in range(rs[router, R_N_BOOKED]):
        j = booked[k]
        on_p = sampled < q[j, Q_ARRIVAL]
        if q[j, Q_BOOKING_OVER] == 0:
            reserved = q[j, Q_TRANSFER_STARTED]
            if (reserved >= 0 and sampled >= reserved) or q[j, Q_STATUS] >= 0:
                q[j, Q_BOOKING_OVER] = 1
            elif now >= q[j, Q_ARRIVAL] + rt.lease:
                q[j, Q_BOOKING_OVER] = 1
                if reserved < 0:
                    counters[EXPIRED] += 1
        on_d = q[j, Q_BOOKING_OVER] == 0
        if on_p:
            row = view.prefill[q[j, Q_PREFILL_NODE]]
            row[0] += np.float64(q[j, Q_EXPECTED_NEW])
            row[1] += 1.0
        if on_d:
            out = view.decode[q[j, Q_DECODE_NODE]]
            out[5] += np.float64((q[j, Q_PROMPT] + q[j, Q_ESTIMATED] + block - 1) // block)
            out[11] += 1.0
            out[12] += np.float64(q[j, Q_PROMPT])
        if on_p or on_d:
            booked[kept] = j
            kept += 1
    rs[router, R_N_BOOKED] = kept


@kernel
def decide(
    rt: Routers,
    rec: Recorder,
    view: ViewArrays,
    scratch: Scratch,
    policy: PolicyArrays,
    laws: LawArrays,
    pool: PoolArrays,
    cache: Int32,
    ids: Int32,
    own_flows: Int64,
    ps: Int64,
    ds: Int64,
    rs: Int64,
    q: Int64,
    counters: Int64,
    r: int,
    now: int,
) -> int:
    """Pair that request r's router chooses, p * D + d, or -1."""
    router = r % rt.replicas
    slot = np.int64(0)
    sampled = np.int64(now)
    if rt.period == 0:
        take_sample(rt, pool, ps, ds, rs, router, int(slot), now)
    elif q[r, Q_SAMPLE] >= 0:
        sampled = rt.sample_time[q[r, Q_SAMPLE]]
        slot = (q[r, Q_SAMPLE] - rs[router, R_SAMPLE_FIRST]) % rt.ring_p.shape[1]
    else:
        sampled = np.int64(-1)
        slot = np.int64(-1)
    age = np.nan if slot < 0 else np.float64(now - sampled) / 1e9
    if slot >= 0 and now > sampled:
        counters[STALE] += 1
    _fill_samples(rt, view, pool, router, slot, age)
    _fill_bookings(rt, view, rs, q, counters, pool.block_tokens, router, sampled, now)
    for p in range(len(ps)):
        view.hit_tokens[p] = match_blocks(cache, ids, q, pool.block_tokens, p, r) * pool.block_tokens
    for u in range(len(view.uplink_flows)):
        view.uplink_flows[u] = own_flows[router, u]
    pair = choose(
        policy,
        laws,
        pool,
        view,
        q[r, Q_PROMPT],
        q[r, Q_ESTIMATED],
        q[r, Q_EXPECTED],
        q[r, Q_SLO_CLASS],
        0.0,
        draw(rt.seed, 4, r, 0),
        rs[router, R_TURN],
        scratch,
    )
    rs[router, R_TURN] += 1
    row = q[r, Q_RECORD]
    if row >= 0:
        for p in range(len(ps)):
            for d in range(len(ds)):
                rec.decision_scores[row, p, d] = scratch.scores[p, d]
                for c in range(scratch.terms.shape[2]):
                    rec.decision_terms[row, p, d, c] = scratch.terms[p, d, c]
        rec.decision_age[row] = age
    return pair
