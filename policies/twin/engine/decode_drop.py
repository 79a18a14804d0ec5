"""Requests that leave a D before they end there, wherever they are (docs/twin.md, "Cancellations"). Kernels."""

from __future__ import annotations

from policies.compiled import kernel
from policies.twin.engine.columns import (
    D_END,
    D_INFLIGHT_BLOCKS,
    D_LAND_HEAD,
    D_LAND_TAIL,
    D_N_FRESH,
    D_N_STALLED,
    D_PARTIAL,
    D_PREEMPTED_HEAD,
    D_QUEUE_HEAD,
    D_QUEUE_TAIL,
    D_QUEUED,
    D_QUEUED_BLOCKS,
    D_RECEIVING,
    D_RECEIVING_TOKENS,
    D_RUNNING_BLOCKS,
    D_STALLED_HEAD,
    D_STEP_SEQUENCES,
    D_STEPS,
    Q_ACTIVATED,
    Q_DECODE_NODE,
    Q_DQ_NEXT,
    Q_LAND_NEXT,
    Q_MADE0,
    Q_PREEMPTED_NEXT,
    Q_PROMPT,
    Q_RESERVED_BLOCKS,
    Q_REST_ON_D,
    Q_RUNS,
    Q_SHARED,
    Q_STEP0,
    Q_TRANSFER_FINISHED,
    Q_TRANSFER_STARTED,
    Q_WAITS,
)
from policies.twin.engine.decode_blocks import blocks_of, book_on_d, release, trim
from policies.twin.engine.decode_runs import ACTIVATED, PREEMPTED, give_back, no_longer_preempted, pause
from policies.twin.engine.links import take_out, wake
from policies.twin.engine.parts import Decode, Int64


@kernel
def drop_from_d(dec: Decode, ds: Int64, q: Int64, r: int, now: int) -> None:
    """Request r, which was handed off and has not ended, leaves D at once; it makes no token in the step under way."""
    d = q[r, Q_DECODE_NODE]
    prompt = q[r, Q_PROMPT]
    trim(dec, ds, d)
    if q[r, Q_TRANSFER_STARTED] < 0:
        take_out(ds, d, D_QUEUE_HEAD, D_QUEUE_TAIL, q, Q_DQ_NEXT, r)
        ds[d, D_QUEUED] -= 1
        ds[d, D_QUEUED_BLOCKS] -= blocks_of(prompt, dec.block_tokens)
        wake(ds, d, D_END, now)
        return
    made = q[r, Q_MADE0]
    if q[r, Q_RUNS] == 1:
        made += ds[d, D_STEPS] - q[r, Q_STEP0]
    book_on_d(dec, ds, q, d, r, made, -1)
    if q[r, Q_ACTIVATED] < 0 or q[r, Q_WAITS] == ACTIVATED:
        if q[r, Q_WAITS] == ACTIVATED:
            take_out(ds, d, D_PREEMPTED_HEAD, -1, q, Q_PREEMPTED_NEXT, r)
        elif q[r, Q_TRANSFER_FINISHED] >= 0:
            take_out(ds, d, D_LAND_HEAD, D_LAND_TAIL, q, Q_LAND_NEXT, r)
        ds[d, D_RECEIVING] -= 1
        ds[d, D_RECEIVING_TOKENS] -= prompt
        shared = prompt if q[r, Q_ACTIVATED] >= 0 else q[r, Q_SHARED] * dec.block_tokens
        freed = release(dec, ds, q, d, r, blocks_of(prompt + q[r, Q_MADE0], dec.block_tokens), shared)
        # What it took and others use now is theirs.
        ds[d, D_INFLIGHT_BLOCKS] -= q[r, Q_RESERVED_BLOCKS]
        ds[d, D_RUNNING_BLOCKS] += q[r, Q_RESERVED_BLOCKS] - freed
    elif q[r, Q_WAITS] == PREEMPTED:
        take_out(ds, d, D_PREEMPTED_HEAD, -1, q, Q_PREEMPTED_NEXT, r)
        no_longer_preempted(dec, ds, q, d, r)
    elif q[r, Q_RUNS] == 1:
        _drop_running(dec, ds, q, d, r, now)
    elif ds[d, D_PARTIAL] == r:
        ds[d, D_PARTIAL] = -1
        computed = prompt + q[r, Q_MADE0] - q[r, Q_REST_ON_D]
        give_back(dec, ds, q, d, r, blocks_of(computed, dec.block_tokens), computed)
    else:
        take_out(ds, d, D_STALLED_HEAD, -1, q, Q_PREEMPTED_NEXT, r)
        ds[d, D_N_STALLED] -= 1
        computed = prompt + q[r, Q_MADE0] - dec.lag
        give_back(dec, ds, q, d, r, blocks_of(computed, dec.block_tokens), computed)
    wake(ds, d, D_END, now)


@kernel
def _drop_running(dec: Decode, ds: Int64, q: Int64, d: int, r: int, now: int) -> None:
    at = 0
    while dec.heap[d, at, 1] != r:
        at += 1
    pause(dec.heap[d], dec.growth[d], dec.running_by_class[d], ds, q, dec.lag, d, at)
    context = q[r, Q_PROMPT] + q[r, Q_MADE0]
    computed = max(q[r, Q_PROMPT], context - dec.lag)
    # With the block of the token that is not made.
    give_back(dec, ds, q, d, r, blocks_of(context + 1 - dec.lag, dec.block_tokens), computed)
    ds[d, D_STEP_SEQUENCES] -= 1
    if ds[d, D_STEP_SEQUENCES] == 0:
        ds[d, D_N_FRESH] = 0
        ds[d, D_END] = now
