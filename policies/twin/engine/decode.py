"""D nodes: reservations, continuous batching, growth, preemption (docs/twin.md, "D node"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import inlined, kernel
from policies.twin.engine.columns import (
    D_END,
    D_GENERATED,
    D_INFLIGHT_BLOCKS,
    D_LAND_HEAD,
    D_LAST_END,
    D_N_FRESH,
    D_N_RUNNING,
    D_PREEMPTED_HEAD,
    D_QUEUE_HEAD,
    D_QUEUED,
    D_QUEUED_BLOCKS,
    D_RECEIVING,
    D_RECEIVING_TOKENS,
    D_RESERVATIONS,
    D_RETAINED,
    D_RUNNING_BLOCKS,
    D_SKIP,
    D_STEP_NS,
    D_STEP_SEQUENCES,
    D_STEPS,
    D_SWAPPED,
    D_TOKENS,
    DECODE_STEPS,
    ENDED,
    GONE,
    NEVER,
    Q_ACTIVATED,
    Q_DQ_NEXT,
    Q_FINISHED,
    Q_FIRST_TOKEN,
    Q_LAND_NEXT,
    Q_LAST_TOKEN,
    Q_MADE0,
    Q_OUTPUT,
    Q_PREEMPTED_NEXT,
    Q_PROMPT,
    Q_RESERVATION,
    Q_RESERVED_BLOCKS,
    Q_RUNS,
    Q_SHARED,
    Q_SLO_CLASS,
    Q_STATUS,
    SWAPPED,
)
from policies.twin.engine.decode_blocks import (
    blocks_of,
    book_on_d,
    booking_fits,
    leading,
    refer,
    share,
    take,
    trim,
)
from policies.twin.engine.decode_reserving import activate_waiting, run_waiting
from policies.twin.engine.decode_runs import STAGED, come_back, join, leave, make_room, running, waiting_fits
from policies.twin.engine.decode_stages import admit_stages, goes_on, next_stage
from policies.twin.engine.decode_steps import count_gaps, count_steps, itl_bin, start_step
from policies.twin.engine.links import queue_release, start_transfer
from policies.twin.engine.parts import Decode, Int32, Int64, Links

COMPLETED = 0


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
def first_on_p(dec: Decode, ps: Int64, q: Int64, counters: Int64, r: int, now: int) -> bool:
    """P has made r's first token; whether that was all."""
    q[r, Q_MADE0] = 1
    q[r, Q_FIRST_TOKEN] = now
    q[r, Q_LAST_TOKEN] = now
    if q[r, Q_OUTPUT] > 1:
        return False
    q[r, Q_FINISHED] = now
    q[r, Q_STATUS] = COMPLETED
    dec.gone[counters[GONE]] = r
    counters[GONE] += 1
    if len(dec.ended) > 0:
        _note_end(dec.ended, q, counters, r)
    queue_release(ps, q, r, now)
    return True


@inlined
def _end_step(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int, now: int) -> None:
    n = ds[d, D_STEP_SEQUENCES]
    ds[d, D_STEPS] += 1
    ds[d, D_TOKENS] += n
    ds[d, D_GENERATED] += n
    count_steps(dec.moments, d, n, 1, ds[d, D_STEP_NS])
    ds[d, D_STEP_SEQUENCES] = 0
    ds[d, D_LAST_END] = now
    step_bin = itl_bin(ds[d, D_STEP_NS])
    count_gaps(dec.itl, dec.running_by_class, d, step_bin, 1)
    for k in range(ds[d, D_N_FRESH]):
        r = dec.fresh[d, k]
        # One may be there twice.
        if q[r, Q_RUNS] == 0 or q[r, Q_LAST_TOKEN] == now:
            continue
        dec.itl[q[r, Q_SLO_CLASS], step_bin] -= 1
        if q[r, Q_FIRST_TOKEN] < 0:
            q[r, Q_FIRST_TOKEN] = now
        else:
            dec.itl[q[r, Q_SLO_CLASS], itl_bin(now - q[r, Q_LAST_TOKEN])] += 1
        q[r, Q_LAST_TOKEN] = now
    ds[d, D_N_FRESH] = 0
    over = -1
    while ds[d, D_N_RUNNING] > 0 and dec.heap[d, 0, 0] <= ds[d, D_STEPS]:
        r = dec.heap[d, 0, 1]
        if dec.books == STAGED and goes_on(ds, q, d, r):
            over = next_stage(dec, ds, q, d, over)
            continue
        leave(dec, ds, q, d, 0)
        book_on_d(dec, ds, q, d, r, q[r, Q_OUTPUT] - 1, -1)
        q[r, Q_FINISHED] = now
        q[r, Q_STATUS] = COMPLETED
        dec.gone[counters[GONE]] = r
        counters[GONE] += 1
        if len(dec.ended) > 0:
            _note_end(dec.ended, q, counters, r)
    if over >= 0:
        admit_stages(dec, ds, q, counters, d, over)


@inlined
def _readmit(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int) -> float:
    """Preempted sequences that fit run again; seconds that their recompute adds to the next step."""
    extra = 0.0
    while ds[d, D_PREEMPTED_HEAD] >= 0 and ds[d, D_N_RUNNING] < dec.max_seqs:
        r = ds[d, D_PREEMPTED_HEAD]
        if not waiting_fits(dec, ds, q, d, r):
            break
        ds[d, D_PREEMPTED_HEAD] = q[r, Q_PREEMPTED_NEXT]
        extra += come_back(dec, ds, q, counters, d, r)
    return extra


@inlined
def _activate(dec: Decode, ps: Int64, ds: Int64, q: Int64, counters: Int64, d: int, now: int) -> int:
    """Landed requests start to run; their number."""
    activated = 0
    while ds[d, D_LAND_HEAD] >= 0 and ds[d, D_N_RUNNING] < dec.max_seqs:
        r = ds[d, D_LAND_HEAD]
        ds[d, D_LAND_HEAD] = q[r, Q_LAND_NEXT]
        ds[d, D_INFLIGHT_BLOCKS] -= q[r, Q_RESERVED_BLOCKS]
        ds[d, D_RUNNING_BLOCKS] += q[r, Q_RESERVED_BLOCKS]
        ds[d, D_RECEIVING] -= 1
        ds[d, D_RECEIVING_TOKENS] -= q[r, Q_PROMPT]
        q[r, Q_ACTIVATED] = now
        share(dec, ds, q, d, r, q[r, Q_SHARED] * dec.block_tokens, q[r, Q_PROMPT])
        if dec.release_on_activation == 1:
            queue_release(ps, q, r, now)
        join(dec, ds, q, counters, d, r)
        activated += 1
    return activated


@inlined
def _reserve(
    dec: Decode, x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, d: int, activated: int, now: int
) -> None:
    reserved = 0
    limited = dec.reservations > 0 and running(ds, d) > 0
    while ds[d, D_QUEUE_HEAD] >= 0:
        if limited and reserved >= dec.reservations + activated:
            break
        r = ds[d, D_QUEUE_HEAD]
        prompt = q[r, Q_PROMPT]
        context = prompt + q[r, Q_MADE0]
        full = prompt // dec.block_tokens
        used = ds[d, D_RUNNING_BLOCKS] + ds[d, D_INFLIGHT_BLOCKS]
        kept_free = dec.admission_reserve if used > 0 else 0
        need = blocks_of(context, dec.block_tokens) - leading(dec, q, d, r, full, 1)
        if used + need + kept_free > dec.blocks[d]:
            break
        if not booking_fits(dec, ds, q, d, r):
            break
        book_on_d(dec, ds, q, d, r, q[r, Q_MADE0], 1)
        ds[d, D_QUEUE_HEAD] = q[r, Q_DQ_NEXT]
        ds[d, D_QUEUED] -= 1
        ds[d, D_QUEUED_BLOCKS] -= blocks_of(prompt, dec.block_tokens)
        there = leading(dec, q, d, r, full, 0)
        ds[d, D_INFLIGHT_BLOCKS] += refer(dec, ds, q, d, r, there)
        take(dec, ds, d, D_INFLIGHT_BLOCKS, there, context)
        q[r, Q_SHARED] = there
        q[r, Q_RESERVED_BLOCKS] = ds[d, D_RUNNING_BLOCKS] + ds[d, D_INFLIGHT_BLOCKS] - used
        q[r, Q_RESERVATION] = ds[d, D_RESERVATIONS]
        ds[d, D_RESERVATIONS] += 1
        ds[d, D_RECEIVING] += 1
        ds[d, D_RECEIVING_TOKENS] += prompt
        reserved += 1
        start_transfer(x, ps, ds, q, counters, r, now)


@inlined
def _between_steps(dec: Decode, x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, d: int, now: int) -> float:
    """Readmissions, activations, reservations and growth in their order; seconds that are added to the next step."""
    extra = 0.0
    activated = 0
    if dec.reserve_first == 1:
        activated = activate_waiting(dec, ps, ds, q, d, now)
    else:
        if ds[d, D_PREEMPTED_HEAD] >= 0:
            extra = _readmit(dec, ds, q, counters, d)
        if ds[d, D_LAND_HEAD] >= 0:
            activated = _activate(dec, ps, ds, q, counters, d, now)
    if ds[d, D_QUEUE_HEAD] >= 0 and (dec.reserve_first == 1 or ds[d, D_PREEMPTED_HEAD] < 0):
        _reserve(dec, x, ps, ds, q, counters, d, activated, now)
    if dec.reserve_first == 1:
        return run_waiting(dec, ds, q, counters, d)
    slot = ds[d, D_STEPS] % dec.block_tokens
    used = ds[d, D_RUNNING_BLOCKS] + ds[d, D_INFLIGHT_BLOCKS]
    if used + dec.growth[d, slot] - ds[d, D_SKIP] > dec.blocks[d]:
        make_room(dec, ds, q, counters, d, 0)
    ds[d, D_RUNNING_BLOCKS] += dec.growth[d, slot] - ds[d, D_SKIP]
    return extra


@inlined
def decode_boundary(dec: Decode, x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, d: int, now: int) -> None:
    """End of D's step (if one ran), what happens between steps, next step."""
    if ds[d, D_RETAINED] > 0:
        trim(dec, ds, d)
    if ds[d, D_STEP_SEQUENCES] > 0:
        counters[DECODE_STEPS] += 1
        _end_step(dec, ds, q, counters, d, now)
    ds[d, D_SKIP] = 0
    gone = counters[GONE]
    extra = _between_steps(dec, x, ps, ds, q, counters, d, now)
    if ds[d, D_SWAPPED] > 0:
        extra += np.float64(ds[d, D_SWAPPED]) * dec.swap_s
        counters[SWAPPED] += ds[d, D_SWAPPED]
        ds[d, D_SWAPPED] = 0
    if ds[d, D_N_RUNNING] > 0:
        start_step(dec, ds, d, extra, now)
        return
    ds[d, D_N_FRESH] = 0
    # A sequence failed: its place is free, and nothing else would wake D.
    again = counters[GONE] > gone and ds[d, D_RECEIVING] == 0
    ds[d, D_END] = now if again and (ds[d, D_QUEUE_HEAD] >= 0 or ds[d, D_PREEMPTED_HEAD] >= 0) else NEVER
