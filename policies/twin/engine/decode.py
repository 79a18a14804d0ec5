"""D nodes: reservations, continuous batching, growth, preemption (docs/twin.md, "D node"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.law_kernel import prefill_s
from policies.twin.engine.columns import (
    D_END,
    D_FREED,
    D_GENERATED,
    D_INFLIGHT_BLOCKS,
    D_LAND_HEAD,
    D_N_FRESH,
    D_N_PREEMPTED,
    D_N_RUNNING,
    D_PREEMPTED_HEAD,
    D_QUEUE_HEAD,
    D_QUEUED,
    D_QUEUED_BLOCKS,
    D_RECEIVING,
    D_RECEIVING_TOKENS,
    D_RUNNING_BLOCKS,
    D_STEP_NS,
    D_STEP_SEQUENCES,
    D_STEPS,
    D_TOKENS,
    DECODE_STEPS,
    ENDED,
    JOINS,
    NEVER,
    NEXT_FLOW,
    PREEMPTIONS,
    Q_ACTIVATED,
    Q_DQ_NEXT,
    Q_FINISHED,
    Q_FIRST_TOKEN,
    Q_JOIN,
    Q_LAND_NEXT,
    Q_MADE0,
    Q_OUTPUT,
    Q_PREEMPTED_NEXT,
    Q_PREEMPTIONS,
    Q_PROMPT,
    Q_RUNS,
    Q_STATUS,
    Q_STEP0,
)
from policies.twin.engine.decode_steps import count_step, start_step
from policies.twin.engine.heap import heap_push, heap_remove
from policies.twin.engine.links import queue_release, start_transfer
from policies.twin.engine.parts import Decode, Int32, Int64, Links

COMPLETED, FAILED = 0, 3


@kernel
def _blocks(tokens: int, block: int) -> int:
    return (tokens + block - 1) // block


@kernel
def _join(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int, r: int) -> None:
    """r runs from the step that starts now."""
    s = ds[d, D_STEPS]
    made = q[r, Q_MADE0]
    context = q[r, Q_PROMPT] + made
    q[r, Q_STEP0] = s
    q[r, Q_RUNS] = 1
    counters[JOINS] += 1
    q[r, Q_JOIN] = counters[JOINS]
    heap_push(dec.heap[d], ds[d, D_N_RUNNING], s + q[r, Q_OUTPUT] - made, r)
    ds[d, D_N_RUNNING] += 1
    ds[d, D_TOKENS] += context
    dec.growth[d, (s - context) % dec.block_tokens] += 1
    if q[r, Q_FIRST_TOKEN] < 0:
        dec.fresh[d, ds[d, D_N_FRESH]] = r
        ds[d, D_N_FRESH] += 1


@kernel
def _leave(dec: Decode, ds: Int64, q: Int64, d: int, at: int) -> None:
    """The running sequence at a heap place stops running and frees its blocks."""
    s = ds[d, D_STEPS]
    r = dec.heap[d, at, 1]
    heap_remove(dec.heap[d], ds[d, D_N_RUNNING], at)
    ds[d, D_N_RUNNING] -= 1
    made = q[r, Q_MADE0] + s - q[r, Q_STEP0]
    context = q[r, Q_PROMPT] + made
    blocks = _blocks(context, dec.block_tokens)
    ds[d, D_TOKENS] -= context
    ds[d, D_RUNNING_BLOCKS] -= blocks
    ds[d, D_FREED] += blocks
    dec.growth[d, (s - context) % dec.block_tokens] -= 1
    q[r, Q_RUNS] = 0
    q[r, Q_MADE0] = made


@kernel
def _note_end(ended: Int32, q: Int64, counters: Int64, r: int) -> None:
    """Keep r among the ended answers by (time, request): Ds run ahead of each other, so it may not be the last."""
    at = counters[ENDED]
    counters[ENDED] = at + 1
    while at > 0:
        before = ended[at - 1]
        if q[before, Q_FINISHED] < q[r, Q_FINISHED] or (q[before, Q_FINISHED] == q[r, Q_FINISHED] and before < r):
            break
        ended[at] = before
        at -= 1
    ended[at] = r


@kernel
def _end_step(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int, now: int) -> None:
    n = ds[d, D_STEP_SEQUENCES]
    ds[d, D_STEPS] += 1
    ds[d, D_TOKENS] += n
    ds[d, D_GENERATED] += n
    count_step(dec.moments, d, n, ds[d, D_STEP_NS])
    ds[d, D_STEP_SEQUENCES] = 0
    for k in range(ds[d, D_N_FRESH]):
        r = dec.fresh[d, k]
        if q[r, Q_RUNS] == 1:
            q[r, Q_FIRST_TOKEN] = now
    ds[d, D_N_FRESH] = 0
    while ds[d, D_N_RUNNING] > 0 and dec.heap[d, 0, 0] <= ds[d, D_STEPS]:
        r = dec.heap[d, 0, 1]
        _leave(dec, ds, q, d, 0)
        q[r, Q_FINISHED] = now
        q[r, Q_STATUS] = COMPLETED
        if len(dec.ended) > 0:
            _note_end(dec.ended, q, counters, r)


@kernel
def _readmit(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int) -> float:
    """Preempted sequences that fit run again; seconds that their recompute adds to the next step."""
    extra = 0.0
    while ds[d, D_PREEMPTED_HEAD] >= 0 and ds[d, D_N_RUNNING] < dec.max_seqs:
        r = ds[d, D_PREEMPTED_HEAD]
        context = q[r, Q_PROMPT] + q[r, Q_MADE0]
        blocks = _blocks(context, dec.block_tokens)
        if ds[d, D_RUNNING_BLOCKS] + ds[d, D_INFLIGHT_BLOCKS] + blocks > dec.blocks[d]:
            break
        ds[d, D_PREEMPTED_HEAD] = q[r, Q_PREEMPTED_NEXT]
        ds[d, D_N_PREEMPTED] -= 1
        ds[d, D_QUEUED_BLOCKS] -= blocks
        ds[d, D_RUNNING_BLOCKS] += blocks
        _join(dec, ds, q, counters, d, r)
        extra += prefill_s(dec.recompute, d, np.float64(context), 0.0, 1.0)
    return extra


@kernel
def _activate(dec: Decode, ps: Int64, ds: Int64, q: Int64, counters: Int64, d: int, now: int) -> int:
    """Landed requests start to run; their number."""
    activated = 0
    while ds[d, D_LAND_HEAD] >= 0 and ds[d, D_N_RUNNING] < dec.max_seqs:
        r = ds[d, D_LAND_HEAD]
        ds[d, D_LAND_HEAD] = q[r, Q_LAND_NEXT]
        blocks = _blocks(q[r, Q_PROMPT], dec.block_tokens)
        ds[d, D_INFLIGHT_BLOCKS] -= blocks
        ds[d, D_RUNNING_BLOCKS] += blocks
        ds[d, D_RECEIVING] -= 1
        ds[d, D_RECEIVING_TOKENS] -= q[r, Q_PROMPT]
        q[r, Q_ACTIVATED] = now
        if dec.release_on_activation == 1:
            queue_release(ps, q, r, now)
        _join(dec, ds, q, counters, d, r)
        activated += 1
    return activated


@kernel
def _reserve(
    dec: Decode, x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, d: int, activated: int, now: int
) -> None:
    reserved = 0
    while ds[d, D_QUEUE_HEAD] >= 0:
        if dec.reservations > 0 and ds[d, D_N_RUNNING] > 0 and reserved >= dec.reservations + activated:
            break
        r = ds[d, D_QUEUE_HEAD]
        blocks = _blocks(q[r, Q_PROMPT], dec.block_tokens)
        if ds[d, D_RUNNING_BLOCKS] + ds[d, D_INFLIGHT_BLOCKS] + blocks > dec.blocks[d]:
            break
        ds[d, D_QUEUE_HEAD] = q[r, Q_DQ_NEXT]
        ds[d, D_QUEUED] -= 1
        ds[d, D_QUEUED_BLOCKS] -= blocks
        ds[d, D_INFLIGHT_BLOCKS] += blocks
        ds[d, D_RECEIVING] += 1
        ds[d, D_RECEIVING_TOKENS] += q[r, Q_PROMPT]
        reserved += 1
        start_transfer(x, ps, ds, q, counters, r, now)


@kernel
def _make_room(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int) -> None:
    """The most recently joined sequences leave until the next step's blocks fit."""
    slot = ds[d, D_STEPS] % dec.block_tokens
    while ds[d, D_N_RUNNING] > 0:
        if ds[d, D_RUNNING_BLOCKS] + ds[d, D_INFLIGHT_BLOCKS] + dec.growth[d, slot] <= dec.blocks[d]:
            return
        newest = 0
        for k in range(1, ds[d, D_N_RUNNING]):
            if q[dec.heap[d, k, 1], Q_JOIN] > q[dec.heap[d, newest, 1], Q_JOIN]:
                newest = k
        r = dec.heap[d, newest, 1]
        alone = ds[d, D_N_RUNNING] == 1 and ds[d, D_INFLIGHT_BLOCKS] == 0
        _leave(dec, ds, q, d, newest)
        if alone:
            q[r, Q_STATUS] = FAILED
            return
        counters[PREEMPTIONS] += 1
        q[r, Q_PREEMPTIONS] += 1
        dec.moments[d, 4] += 1
        q[r, Q_PREEMPTED_NEXT] = ds[d, D_PREEMPTED_HEAD]
        ds[d, D_PREEMPTED_HEAD] = r
        ds[d, D_N_PREEMPTED] += 1
        ds[d, D_QUEUED_BLOCKS] += _blocks(q[r, Q_PROMPT] + q[r, Q_MADE0], dec.block_tokens)


@kernel
def decode_boundary(
    dec: Decode, x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, d: int, now: int, horizon: int
) -> None:
    """End of D's step (if one ran), readmissions, activations, reservations, growth, next step."""
    if ds[d, D_STEP_SEQUENCES] > 0:
        counters[DECODE_STEPS] += 1
        _end_step(dec, ds, q, counters, d, now)
    extra = 0.0
    activated = 0
    if ds[d, D_PREEMPTED_HEAD] >= 0:
        extra = _readmit(dec, ds, q, counters, d)
    if ds[d, D_LAND_HEAD] >= 0:
        activated = _activate(dec, ps, ds, q, counters, d, now)
    if ds[d, D_QUEUE_HEAD] >= 0 and ds[d, D_PREEMPTED_HEAD] < 0:
        _reserve(dec, x, ps, ds, q, counters, d, activated, now)
    need = dec.growth[d, ds[d, D_STEPS] % dec.block_tokens]
    if ds[d, D_RUNNING_BLOCKS] + ds[d, D_INFLIGHT_BLOCKS] + need > dec.blocks[d]:
        _make_room(dec, ds, q, counters, d)
        need = dec.growth[d, ds[d, D_STEPS] % dec.block_tokens]
    ds[d, D_RUNNING_BLOCKS] += need
    if ds[d, D_N_RUNNING] > 0:
        start_step(dec, ds, counters, d, extra, now, min(horizon, counters[NEXT_FLOW]))
        return
    ds[d, D_N_FRESH] = 0
    stuck = ds[d, D_INFLIGHT_BLOCKS] == 0 and (ds[d, D_QUEUE_HEAD] >= 0 or ds[d, D_PREEMPTED_HEAD] >= 0)
    ds[d, D_END] = now if stuck else NEVER
