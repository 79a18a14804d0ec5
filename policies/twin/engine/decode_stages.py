"""Sequences that ask D for room stage by stage of their answer (docs/twin.md, `admission = staged`). Kernels."""

from __future__ import annotations

from policies.compiled import kernel
from policies.twin.engine.columns import (
    D_BOOKED,
    D_N_RUNNING,
    D_STEPS,
    Q_JOIN,
    Q_MADE0,
    Q_OUTPUT,
    Q_PREEMPTED_NEXT,
    Q_STEP0,
)
from policies.twin.engine.decode_blocks import book_on_d, booked_blocks
from policies.twin.engine.decode_runs import leave, preempt, tokens_to_go
from policies.twin.engine.heap import heap_push, heap_remove
from policies.twin.engine.parts import Decode, Int64


@kernel
def _made(ds: Int64, q: Int64, d: int, r: int) -> int:
    return int(q[r, Q_MADE0] + ds[d, D_STEPS] - q[r, Q_STEP0])


@kernel
def goes_on(ds: Int64, q: Int64, d: int, r: int) -> bool:
    """r, which runs, has not made its whole answer."""
    return bool(_made(ds, q, d, r) < q[r, Q_OUTPUT])


@kernel
def next_stage(dec: Decode, ds: Int64, q: Int64, d: int, first: int) -> int:
    """The sequence at the top of D's heap begins its next stage, and is listed, oldest first; the list's first."""
    heap = dec.heap[d]
    r = heap[0, 1]
    heap_remove(heap, ds[d, D_N_RUNNING], 0)
    heap_push(heap, ds[d, D_N_RUNNING] - 1, ds[d, D_STEPS] + tokens_to_go(dec, q, r, _made(ds, q, d, r)), r)
    before, after = -1, first
    while after >= 0 and q[after, Q_JOIN] < q[r, Q_JOIN]:
        before, after = after, q[after, Q_PREEMPTED_NEXT]
    q[r, Q_PREEMPTED_NEXT] = after
    if before < 0:
        return int(r)
    q[before, Q_PREEMPTED_NEXT] = r
    return first


@kernel
def admit_stages(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int, first: int) -> None:
    """Listed sequences book their next stage; one for which D has no room is preempted."""
    while first >= 0:
        r = first
        first = q[r, Q_PREEMPTED_NEXT]
        made = _made(ds, q, d, r)
        before = booked_blocks(dec, q, r, made - 1)
        others = ds[d, D_BOOKED] - before
        now = booked_blocks(dec, q, r, made)
        if others == 0 or others + now <= dec.blocks[d]:
            ds[d, D_BOOKED] = others + now
            continue
        at = 0
        while dec.heap[d, at, 1] != r:
            at += 1
        leave(dec, ds, q, d, at)
        book_on_d(dec, ds, q, d, r, made - 1, -1)
        preempt(dec, ds, q, counters, d, r)
