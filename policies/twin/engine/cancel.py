"""Requests that are taken out of the pool, wherever they are (docs/twin.md, "Cancellations"). Kernels."""

from __future__ import annotations

from policies.compiled import kernel
from policies.twin.engine.columns import (
    CANCELS,
    FLOWS,
    GONE,
    Q_ACTIVATED,
    Q_ARRIVAL,
    Q_PREFILL_FINISHED,
    Q_STATUS,
    Q_TRANSFER_DRAINED,
    Q_TRANSFER_FINISHED,
    Q_TRANSFER_STARTED,
    X_PHASE,
    X_REQUEST,
)
from policies.twin.engine.decode_drop import drop_from_d
from policies.twin.engine.flows import remove_flow
from policies.twin.engine.heap import heap_push, heap_remove
from policies.twin.engine.links import DRAINING, stop_draining
from policies.twin.engine.parts import Decode, Int64, Links, Prefill
from policies.twin.engine.prefill import drop_from_p

CANCELLED = 4


@kernel
def await_cancel(patience: Int64, cancels: Int64, q: Int64, counters: Int64, r: int) -> None:
    """Request r has arrived and will be cancelled if it is not over by then."""
    if len(patience) > 0 and patience[r] >= 0 and q[r, Q_STATUS] < 0:
        heap_push(cancels, counters[CANCELS], q[r, Q_ARRIVAL] + patience[r], r)
        counters[CANCELS] += 1


@kernel
def cancel_next(
    cancels: Int64, pre: Prefill, dec: Decode, x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, now: int
) -> None:
    """The cancellation that is due now."""
    r = cancels[0, 1]
    heap_remove(cancels, counters[CANCELS], 0)
    counters[CANCELS] -= 1
    if q[r, Q_STATUS] < 0:
        drop(pre, dec, x, ps, ds, q, counters, r, CANCELLED, now)


@kernel
def drop(
    pre: Prefill, dec: Decode, x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, r: int, status: int, now: int
) -> None:
    """Request r, which was placed and has not ended, is over: all that it holds is free now."""
    if q[r, Q_TRANSFER_STARTED] >= 0 and q[r, Q_TRANSFER_FINISHED] < 0:
        _drop_flow(x, ps, ds, q, counters, r, now)
    # A release that waits is done at P's boundary like any other.
    if q[r, Q_TRANSFER_DRAINED if x.release_on_activation == 0 else Q_ACTIVATED] < 0:
        drop_from_p(pre, ps, q, counters, r, now)
    if q[r, Q_PREFILL_FINISHED] >= 0:
        drop_from_d(dec, ds, q, r, now)
    q[r, Q_STATUS] = status
    dec.gone[counters[GONE]] = r
    counters[GONE] += 1


@kernel
def _drop_flow(x: Links, ps: Int64, ds: Int64, q: Int64, counters: Int64, r: int, now: int) -> None:
    for at in range(counters[FLOWS]):
        k = x.flow_heap[at]
        if x.flows[k, X_REQUEST] == r:
            if x.flows[k, X_PHASE] == DRAINING:
                stop_draining(x, ps, ds, q, counters, k, now)
            remove_flow(x, counters, k)
            return
