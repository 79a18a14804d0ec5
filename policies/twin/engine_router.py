"""Routers: samples, bookings, the view of a decision (docs/twin.md, "What a router sees"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.families.choose_kernel import choose
from policies.kernel_types import LawArrays, PolicyArrays, PoolArrays, Scratch, ViewArrays
from policies.twin.engine_links import draw
from policies.twin.engine_prefill import match_blocks
from policies.twin.engine_state import (
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
    Memory,
    Recorder,
    Rules,
)


@kernel
def take_sample(m: Memory, pool: PoolArrays, router: int, slot: int, now: int) -> None:
    """Every node's state now, into a slot of the router's ring."""
    for p in range(len(m.ps)):
        row = m.ring_p[router, slot, p]
        row[0] = m.ps[p, P_BACKLOG_TOKENS]
        row[1] = m.ps[p, P_BACKLOG_REQUESTS]
        row[2] = pool.prefill_blocks[p] - m.ps[p, P_PINNED]
        row[3] = m.ps[p, P_SENDING]
    last = m.rs[router, R_LAST_TIME]
    for d in range(len(m.ds)):
        if last >= 0 and now > last:
            seconds = np.float64(now - last) / 1e9
            made = np.float64(m.ds[d, D_GENERATED] - m.last[router, d, 0])
            m.rate[router, d, 0] = made / np.float64(pool.block_tokens) / seconds
            m.rate[router, d, 1] = np.float64(m.ds[d, D_FREED] - m.last[router, d, 1]) / seconds
        m.last[router, d, 0] = m.ds[d, D_GENERATED]
        m.last[router, d, 1] = m.ds[d, D_FREED]
        row = m.ring_d[router, slot, d]
        row[0] = pool.decode_blocks[d]
        row[1] = m.ds[d, D_RUNNING_BLOCKS]
        row[2] = 0.0
        row[3] = m.ds[d, D_INFLIGHT_BLOCKS]
        row[4] = 0.0
        row[5] = m.ds[d, D_QUEUED_BLOCKS]
        row[6] = m.ds[d, D_N_RUNNING]
        row[7] = m.ds[d, D_TOKENS]
        row[8] = m.ds[d, D_RECEIVING]
        row[9] = m.ds[d, D_RECEIVING_TOKENS]
        row[10] = m.rate[router, d, 0]
        row[11] = m.rate[router, d, 1]
    m.rs[router, R_LAST_TIME] = now


@kernel
def _fill_samples(m: Memory, view: ViewArrays, pool: PoolArrays, router: int, slot: int, age: float) -> None:
    """View columns from a sample; slot -1: nothing was ever sampled."""
    for p in range(len(m.ps)):
        out = view.prefill[p]
        for c in range(4):
            out[c] = m.ring_p[router, slot, p, c] if slot >= 0 else np.nan
        out[4] = age
    for d in range(len(m.ds)):
        to = view.decode[d]
        for c in range(5):
            to[c] = m.ring_d[router, slot, d, c] if slot >= 0 else np.nan
        to[0] = pool.decode_blocks[d]
        to[5] = 0.0
        for c in range(5, 10):
            to[c + 1] = m.ring_d[router, slot, d, c] if slot >= 0 else np.nan
        to[11] = 0.0
        to[12] = 0.0
        to[13] = m.ring_d[router, slot, d, 10] if slot >= 0 else np.nan
        to[14] = m.ring_d[router, slot, d, 11] if slot >= 0 else np.nan
        to[15] = age


@kernel
def _fill_bookings(
    m: Memory, view: ViewArrays, rules: Rules, pool: PoolArrays, router: int, sampled: int, now: int
) -> None:
    """Add the router's own decisions that the used sample cannot show; forget those that none will need."""
    kept = 0
    b = pool.block_tokens
    for k in range(m.rs[router, R_N_BOOKED]):
        j = m.booked[router, k]
        on_p = sampled < m.q[j, Q_ARRIVAL]
        if m.q[j, Q_BOOKING_OVER] == 0:
            reserved = m.q[j, Q_TRANSFER_STARTED]
            if (reserved >= 0 and sampled >= reserved) or m.q[j, Q_STATUS] >= 0:
                m.q[j, Q_BOOKING_OVER] = 1
            elif now >= m.q[j, Q_ARRIVAL] + rules.lease:
                m.q[j, Q_BOOKING_OVER] = 1
                if reserved < 0:
                    m.counters[EXPIRED] += 1
        if on_p:
            row = view.prefill[m.q[j, Q_PREFILL_NODE]]
            row[0] += np.float64(m.q[j, Q_EXPECTED_NEW])
            row[1] += 1.0
        if m.q[j, Q_BOOKING_OVER] == 0:
            to = view.decode[m.q[j, Q_DECODE_NODE]]
            to[5] += np.float64((m.q[j, Q_PROMPT] + m.q[j, Q_ESTIMATED] + b - 1) // b)
            to[11] += 1.0
            to[12] += np.float64(m.q[j, Q_PROMPT])
        if on_p or m.q[j, Q_BOOKING_OVER] == 0:
            m.booked[router, kept] = j
            kept += 1
    m.rs[router, R_N_BOOKED] = kept


@kernel
def decide(
    m: Memory,
    rec: Recorder,
    view: ViewArrays,
    scratch: Scratch,
    rules: Rules,
    policy: PolicyArrays,
    laws: LawArrays,
    pool: PoolArrays,
    r: int,
    now: int,
) -> int:
    """Pair that request r's router chooses, p * D + d, or -1."""
    router = r % rules.routers
    if rules.period == 0:
        slot = 0
        sampled = now
        take_sample(m, pool, router, slot, now)
    else:
        index = m.q[r, Q_SAMPLE]
        slot = -1 if index < 0 else (index - m.rs[router, R_SAMPLE_FIRST]) % m.ring_p.shape[1]
        sampled = np.int64(-1) if index < 0 else m.sample_time[index]
    age = np.nan if slot < 0 else np.float64(now - sampled) / 1e9
    if slot >= 0 and now > sampled:
        m.counters[STALE] += 1
    _fill_samples(m, view, pool, router, slot, age)
    _fill_bookings(m, view, rules, pool, router, sampled, now)
    for p in range(len(m.ps)):
        view.hit_tokens[p] = match_blocks(m, pool, p, r) * pool.block_tokens
    for u in range(len(pool.uplink)):
        view.uplink_flows[u] = m.uplink_flows[router, u]
    pair = choose(
        policy,
        laws,
        pool,
        view,
        m.q[r, Q_PROMPT],
        m.q[r, Q_ESTIMATED],
        m.q[r, Q_EXPECTED],
        m.q[r, Q_SLO_CLASS],
        0.0,
        draw(rules.seed, 4, r, 0),
        m.rs[router, R_TURN],
        scratch,
    )
    m.rs[router, R_TURN] += 1
    row = m.q[r, Q_RECORD]
    if row >= 0:
        rec.decision_scores[row] = scratch.scores
        rec.decision_terms[row] = scratch.terms
        rec.decision_age[row] = age
    return pair
