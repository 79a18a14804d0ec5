"""Requests are given to their P, and handed on to their D. Kernels."""

from __future__ import annotations

from policies.compiled import kernel
from policies.twin.engine.columns import (
    D_END,
    D_QUEUE_HEAD,
    D_QUEUE_TAIL,
    D_QUEUED,
    D_QUEUED_BLOCKS,
    Q_DECODE_NODE,
    Q_DQ_NEXT,
    Q_EXPECTED_NEW,
    Q_PREFILL_NODE,
    Q_PROMPT,
)
from policies.twin.engine.links import push_back, wake
from policies.twin.engine.own import own_on_d, own_on_p
from policies.twin.engine.parts import Int32, Int64, Routers
from policies.twin.engine.prefill import enqueue
from policies.twin.engine.router import book


@kernel
def place(
    rt: Routers,
    hits: Int64,
    queues: Int64,
    ids: Int32,
    ps: Int64,
    rs: Int64,
    q: Int64,
    block: int,
    r: int,
    p: int,
    d: int,
    on_d: bool,
    now: int,
) -> None:
    """Request r goes to (P, D): it joins P's queue and its router books it, on D only if D stands fast."""
    q[r, Q_PREFILL_NODE] = p
    q[r, Q_DECODE_NODE] = d
    expected_new = q[r, Q_PROMPT] - hits[p] * block
    q[r, Q_EXPECTED_NEW] = expected_new
    enqueue(queues, ps, q, p, r, now)
    book(rt, rs, q, r, on_d, now)
    own_on_p(rt, q, r)
    if on_d:
        own_on_d(rt, ids, q, block, r, 1)


@kernel
def hand_off(ds: Int64, q: Int64, block: int, r: int, now: int) -> None:
    """A prompt that a P has just finished joins the queue of its D."""
    d = q[r, Q_DECODE_NODE]
    push_back(ds, d, D_QUEUE_HEAD, D_QUEUE_TAIL, q, Q_DQ_NEXT, r)
    ds[d, D_QUEUED] += 1
    ds[d, D_QUEUED_BLOCKS] += (q[r, Q_PROMPT] + block - 1) // block
    wake(ds, d, D_END, now)
