"""D nodes that reserve before they let sequences run, and compute preempted ones again in steps. Kernels."""

from __future__ import annotations

from policies.compiled import kernel
from policies.twin.engine.columns import (
    D_INFLIGHT_BLOCKS,
    D_LAND_HEAD,
    D_N_RUNNING,
    D_N_STALLED,
    D_PARTIAL,
    D_PREEMPTED_HEAD,
    D_QUEUE_HEAD,
    D_RECEIVING,
    D_RECEIVING_TOKENS,
    D_RUNNING_BLOCKS,
    D_SKIP,
    D_STALLED_HEAD,
    JOINS,
    Q_ACTIVATED,
    Q_JOIN,
    Q_LAND_NEXT,
    Q_MADE0,
    Q_PREEMPTED_NEXT,
    Q_PROMPT,
    Q_RESERVATION,
    Q_RESERVED_BLOCKS,
    Q_REST_ON_D,
    Q_SHARED,
    Q_STEP0,
    Q_WAITS,
)
from policies.twin.engine.decode_blocks import blocks_of, leading, refer, share, take, trim
from policies.twin.engine.decode_runs import (
    ACTIVATED,
    come_back,
    enter,
    join,
    lacking,
    make_room,
    no_longer_preempted,
    pause,
    running,
    waiting_fits,
)
from policies.twin.engine.links import queue_release
from policies.twin.engine.parts import Decode, Int64


@kernel
def activate_waiting(dec: Decode, ps: Int64, ds: Int64, q: Int64, d: int, now: int) -> int:
    """Landed requests wait to run, before those that were reserved later; their number."""
    activated = 0
    while ds[d, D_LAND_HEAD] >= 0:
        r = ds[d, D_LAND_HEAD]
        ds[d, D_LAND_HEAD] = q[r, Q_LAND_NEXT]
        q[r, Q_ACTIVATED] = now
        share(dec, ds, q, d, r, q[r, Q_SHARED] * dec.block_tokens, q[r, Q_PROMPT])
        q[r, Q_WAITS] = ACTIVATED
        if dec.release_on_activation == 1:
            queue_release(ps, q, r, now)
        before = -1
        after = ds[d, D_PREEMPTED_HEAD]
        while after >= 0 and q[after, Q_RESERVATION] < q[r, Q_RESERVATION]:
            before = after
            after = q[after, Q_PREEMPTED_NEXT]
        q[r, Q_PREEMPTED_NEXT] = after
        if before < 0:
            ds[d, D_PREEMPTED_HEAD] = r
        else:
            q[before, Q_PREEMPTED_NEXT] = r
        activated += 1
    return activated


@kernel
def _stall(dec: Decode, ds: Int64, q: Int64, d: int, r: int) -> None:
    """Those that joined after r, which computes its context again, wait behind the ones that wait already."""
    while True:
        first = -1
        for k in range(ds[d, D_N_RUNNING]):
            number = q[dec.heap[d, k, 1], Q_JOIN]
            if number > q[r, Q_JOIN] and (first < 0 or number < q[dec.heap[d, first, 1], Q_JOIN]):
                first = k
        if first < 0:
            return
        stalled = pause(dec.heap[d], dec.growth[d], dec.running_by_class[d], ds, q, dec.lag, d, first)
        q[stalled, Q_PREEMPTED_NEXT] = -1
        last = ds[d, D_STALLED_HEAD]
        if last < 0:
            ds[d, D_STALLED_HEAD] = stalled
        else:
            while q[last, Q_PREEMPTED_NEXT] >= 0:
                last = q[last, Q_PREEMPTED_NEXT]
            q[last, Q_PREEMPTED_NEXT] = stalled
        ds[d, D_N_STALLED] += 1


@kernel
def _go_on(dec: Decode, ds: Int64, q: Int64, d: int) -> None:
    """The first stalled sequence makes tokens again; it computes the last one that it made, so it may need a block."""
    r = ds[d, D_STALLED_HEAD]
    ds[d, D_STALLED_HEAD] = q[r, Q_PREEMPTED_NEXT]
    ds[d, D_N_STALLED] -= 1
    skipped = ds[d, D_SKIP]
    enter(dec, ds, q, d, r)
    ds[d, D_SKIP] = skipped
    q[r, Q_STEP0] -= 1
    q[r, Q_MADE0] -= 1


@kernel
def _let_run(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int, budget: int) -> float:
    """Waiting sequences run, as far as there is room and tokens are left; seconds that this adds to the next step."""
    b = dec.block_tokens
    extra = 0.0
    while ds[d, D_PREEMPTED_HEAD] >= 0 and running(ds, d) < dec.max_seqs:
        before = -1
        r = ds[d, D_PREEMPTED_HEAD]
        if q[r, Q_WAITS] != ACTIVATED:
            fits = ds[d, D_QUEUE_HEAD] < 0 and waiting_fits(dec, ds, q, d, r)
            if not fits and (ds[d, D_QUEUE_HEAD] >= 0 or running(ds, d) == 0):
                while r >= 0 and q[r, Q_WAITS] != ACTIVATED:
                    before = r
                    r = q[r, Q_PREEMPTED_NEXT]
            elif not fits:
                break
        if r < 0:
            break
        activated = q[r, Q_WAITS] == ACTIVATED
        if not activated and dec.in_steps == 1 and budget == 0:
            break
        if before < 0:
            ds[d, D_PREEMPTED_HEAD] = q[r, Q_PREEMPTED_NEXT]
        else:
            q[before, Q_PREEMPTED_NEXT] = q[r, Q_PREEMPTED_NEXT]
        if activated:
            q[r, Q_WAITS] = 0
            ds[d, D_INFLIGHT_BLOCKS] -= q[r, Q_RESERVED_BLOCKS]
            ds[d, D_RUNNING_BLOCKS] += q[r, Q_RESERVED_BLOCKS]
            ds[d, D_RECEIVING] -= 1
            ds[d, D_RECEIVING_TOKENS] -= q[r, Q_PROMPT]
            join(dec, ds, q, counters, d, r)
            if budget == 0:
                break
        elif dec.in_steps == 0:
            extra += come_back(dec, ds, q, counters, d, r)
        else:
            no_longer_preempted(dec, ds, q, d, r)
            context = q[r, Q_PROMPT] + q[r, Q_MADE0]
            there = leading(dec, q, d, r, (context - 1) // b, 0)
            ds[d, D_RUNNING_BLOCKS] += refer(dec, ds, q, d, r, there)
            chunk = min(budget, context - there * b)
            take(dec, ds, d, D_RUNNING_BLOCKS, there, there * b + chunk)
            share(dec, ds, q, d, r, there * b, there * b + chunk)
            budget -= chunk
            q[r, Q_REST_ON_D] = context - there * b - chunk
            if q[r, Q_REST_ON_D] == 0:
                join(dec, ds, q, counters, d, r)
            else:
                counters[JOINS] += 1
                q[r, Q_JOIN] = counters[JOINS]
                ds[d, D_PARTIAL] = r
    return extra


@kernel
def run_waiting(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int) -> float:
    """Running sequences go on, waiting ones run, until some make tokens; seconds that this adds to the next step."""
    b = dec.block_tokens
    extra = 0.0
    while True:
        r = ds[d, D_PARTIAL]
        chunk = 0
        if r >= 0:
            _stall(dec, ds, q, d, r)
        budget = max(0, dec.chunk_tokens - ds[d, D_N_RUNNING])
        if r >= 0:
            chunk = min(budget, q[r, Q_REST_ON_D])
            budget -= chunk
        while ds[d, D_STALLED_HEAD] >= 0 and (r < 0 or budget > 0):
            _go_on(dec, ds, q, d)
            budget = max(0, budget - 1)
        preempted = make_room(dec, ds, q, counters, d, chunk)
        ds[d, D_RUNNING_BLOCKS] += lacking(dec, ds, q, d, 0)
        trim(dec, ds, d)
        r = ds[d, D_PARTIAL]
        if r >= 0:
            computed = q[r, Q_PROMPT] + q[r, Q_MADE0] - q[r, Q_REST_ON_D]
            take(dec, ds, d, D_RUNNING_BLOCKS, blocks_of(computed, b), computed + chunk)
            share(dec, ds, q, d, r, computed, computed + chunk)
            q[r, Q_REST_ON_D] -= chunk
            if q[r, Q_REST_ON_D] == 0:
                ds[d, D_PARTIAL] = -1
                enter(dec, ds, q, d, r)
        if not preempted:
            extra += _let_run(dec, ds, q, counters, d, budget)
        if ds[d, D_N_RUNNING] > 0 or (running(ds, d) == 0 and not preempted):
            return extra
