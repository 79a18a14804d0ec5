"""Samples of the pool, by router: when they are taken, and what a view makes of one (docs/twin.md). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.kernel_types import PoolArrays, ViewArrays
from policies.twin.engine.columns import (
    D_FREED,
    D_GENERATED,
    D_INFLIGHT_BLOCKS,
    D_N_PREEMPTED,
    D_N_RUNNING,
    D_QUEUED,
    D_QUEUED_BLOCKS,
    D_RECEIVING,
    D_RECEIVING_TOKENS,
    D_RUNNING_BLOCKS,
    D_TOKENS,
    NEVER,
    P_BACKLOG_REQUESTS,
    P_BACKLOG_TOKENS,
    P_N_RUNNING,
    P_PINNED,
    P_QUEUED,
    P_SENDING,
    R_LAST_TIME,
    R_NEXT_SAMPLE,
    R_SAMPLE_DONE,
    R_SAMPLE_END,
    R_TAKEN,
)
from policies.twin.engine.links import draw
from policies.twin.engine.parts import Float64, Int64, Routers
from policies.view import DECODE_COLUMNS, PREFILL_COLUMNS

WAITING_P = PREFILL_COLUMNS.index("waiting_requests")
RUNNING_P = PREFILL_COLUMNS.index("running_requests")
TOTAL = PREFILL_COLUMNS.index("total_blocks")
WAITING_D = DECODE_COLUMNS.index("waiting_requests")
SAMPLE_LOSS = 5  # component of `draw`


@kernel
def take_sample(rt: Routers, pool: PoolArrays, ps: Int64, ds: Int64, rs: Int64, router: int, now: int) -> None:
    """Every node's state now, into the next slot of the router's ring."""
    slot = rs[router, R_TAKEN] % rt.ring_time.shape[1]
    rt.ring_time[router, slot] = now
    rs[router, R_TAKEN] += 1
    for p in range(len(ps)):
        row = rt.ring_p[router, slot, p]
        row[0] = ps[p, P_BACKLOG_TOKENS]
        row[1] = ps[p, P_BACKLOG_REQUESTS]
        row[2] = pool.prefill_blocks[p] - ps[p, P_PINNED]
        row[3] = ps[p, P_SENDING]
        row[4] = ps[p, P_QUEUED]
        row[5] = ps[p, P_N_RUNNING]
    last = rs[router, R_LAST_TIME]
    for d in range(len(ds)):
        rates, totals = rt.kv_rates[router, d], rt.totals[router, d]
        if last >= 0 and now > last:
            seconds = np.float64(now - last) / 1e9
            grown = np.float64(ds[d, D_GENERATED] - totals[0]) / np.float64(pool.block_tokens) / seconds
            freed = np.float64(ds[d, D_FREED] - totals[1]) / seconds
            if rt.half_life_s > 0.0 and not np.isnan(rates[0]):
                share = seconds / (seconds + rt.half_life_s)
                grown = rates[0] + share * (grown - rates[0])
                freed = rates[1] + share * (freed - rates[1])
            rates[0] = grown
            rates[1] = freed
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
        out[12] = ds[d, D_QUEUED] + ds[d, D_N_PREEMPTED]
        for c in range(rt.running.shape[1]):
            out[13 + c] = rt.running[d, c]
    rs[router, R_LAST_TIME] = now


@kernel
def tick(
    rt: Routers, pool: PoolArrays, ps: Int64, ds: Int64, rs: Int64, router: int, next_arrival: int, now: int
) -> None:
    """A tick of the router, and when its next one is. `next_arrival` NEVER = none comes."""
    if rt.every_tick == 0:
        take_sample(rt, pool, ps, ds, rs, router, now)
        done = rs[router, R_SAMPLE_DONE] + 1
        rs[router, R_SAMPLE_DONE] = done
        rs[router, R_NEXT_SAMPLE] = rt.sample_time[done] if done < rs[router, R_SAMPLE_END] else NEVER
        return
    phase = router * rt.period // rt.replicas
    number = (now - phase) // rt.period
    if not is_lost(rt.seed, rt.loss_frac, router, number) and not _in_gap(rt.gaps, now):
        take_sample(rt, pool, ps, ds, rs, router, now)
    rs[router, R_NEXT_SAMPLE] = now + rt.period
    waiting = 0
    for p in range(len(ps)):
        waiting += ps[p, P_BACKLOG_REQUESTS]
    if waiting == 0 and next_arrival == NEVER:
        rs[router, R_NEXT_SAMPLE] = NEVER
    elif waiting == 0 and rt.half_life_s == 0.0 and rt.loss_frac == 0.0 and len(rt.gaps) == 0:
        # Nothing can be decided before the next arrival, which needs the newest usable tick and the one before it.
        number = (next_arrival - rt.delay - 1 - phase) // rt.period - 1
        rs[router, R_NEXT_SAMPLE] = max(now + rt.period, number * rt.period + phase)


@kernel
def _in_gap(gaps: Int64, now: int) -> bool:
    within = False
    for k in range(len(gaps)):
        within = within or gaps[k, 0] <= now < gaps[k, 1]
    return within


@kernel
def is_lost(seed: np.uint64, loss_frac: float, router: int, number: int) -> bool:
    """Whether the sample of a router's tick never comes."""
    if loss_frac <= 0.0:
        return False
    return float(draw(seed, SAMPLE_LOSS, router, number) >> np.uint64(11)) * 2.0**-53 < loss_frac


@kernel
def newest(ring_time: Int64, taken: int, router: int, delay: int, now: int) -> int:
    """Slot of the newest sample that the router has seen, -1 = none."""
    slots = ring_time.shape[1]
    k = taken - 1
    while k >= 0 and k >= taken - slots:
        if ring_time[router, k % slots] + delay < now:
            return int(k % slots)
        k -= 1
    return -1


@kernel
def fill_samples(rt: Routers, view: ViewArrays, pool: PoolArrays, router: int, slot: int, age: float) -> None:
    """View columns from a sample; slot -1: nothing was ever sampled."""
    for p in range(len(view.prefill)):
        row = view.prefill[p]
        for c in range(4):
            row[c] = rt.ring_p[router, slot, p, c] if slot >= 0 else np.nan
        row[4] = age
        row[WAITING_P] = rt.ring_p[router, slot, p, 4] if slot >= 0 else np.nan
        row[RUNNING_P] = rt.ring_p[router, slot, p, 5] if slot >= 0 else np.nan
        row[TOTAL] = pool.prefill_blocks[p]
    for d in range(len(view.decode)):
        out = view.decode[d]
        for c in range(12):
            value = rt.ring_d[router, slot, d, c] if slot >= 0 else np.nan
            out[c if c < 5 else c + 1 if c < 10 else c + 3] = value
        for c in range(view.running_by_class.shape[1]):
            view.running_by_class[d, c] = rt.ring_d[router, slot, d, 13 + c] if slot >= 0 else np.nan
        out[0] = pool.decode_blocks[d]
        out[5] = 0.0
        out[11] = 0.0
        out[12] = 0.0
        out[15] = age
        out[WAITING_D] = rt.ring_d[router, slot, d, 12] if slot >= 0 else np.nan
        if rt.correct_age == 1 and slot >= 0:
            _bring_up(out, view.running_by_class, d, pool.block_tokens, age)


@kernel
def _bring_up(out: Float64, running_by_class: Float64, d: int, block: int, age: float) -> None:
    """D's sample, brought up to now by its growth and release."""
    growth = 0.0 if np.isnan(out[13]) else out[13]
    release = 0.0 if np.isnan(out[14]) else out[14]
    freed = release * age
    share = 0.0
    if out[1] > 0.0:
        share = freed / out[1] if freed < out[1] else 1.0
    active = out[1] + growth * age - freed
    active = 0.0 if active < 0.0 else active
    out[1] = out[0] if out[0] < active else active
    out[7] -= out[7] * share
    out[8] = out[8] - out[8] * share + growth * np.float64(block) * age
    for c in range(running_by_class.shape[1]):
        running_by_class[d, c] -= running_by_class[d, c] * share
