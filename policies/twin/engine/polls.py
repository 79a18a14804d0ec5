"""The recorder's polls. Kernels."""

from __future__ import annotations

from policies.compiled import kernel
from policies.twin.engine.columns import (
    D_GENERATED,
    D_INFLIGHT_BLOCKS,
    D_N_PREEMPTED,
    D_N_RUNNING,
    D_QUEUED,
    D_QUEUED_BLOCKS,
    D_RECEIVING,
    D_RECEIVING_TOKENS,
    D_RUNNING_BLOCKS,
    D_STEPS,
    D_TOKENS,
    P_BACKLOG_TOKENS,
    P_BUSY_NS,
    P_CACHED,
    P_COMPUTED,
    P_HELD,
    P_N_RUNNING,
    P_PINNED,
    P_QUEUED,
    P_SENDING,
)
from policies.twin.engine.parts import Int64, Recorder


@kernel
def write_poll(rec: Recorder, moments: Int64, ps: Int64, ds: Int64, row: int) -> None:
    """The recorder's poll: columns as in columns.POLL_P and POLL_D."""
    for p in range(len(ps)):
        out = rec.poll_p[row, p]
        out[0] = ps[p, P_PINNED]
        out[1] = ps[p, P_CACHED]
        out[2] = ps[p, P_HELD]
        out[3] = ps[p, P_QUEUED]
        out[4] = ps[p, P_N_RUNNING]
        out[5] = ps[p, P_BACKLOG_TOKENS]
        out[6] = ps[p, P_SENDING]
        out[7] = ps[p, P_BUSY_NS]
        out[8] = ps[p, P_COMPUTED]
    for d in range(len(ds)):
        to = rec.poll_d[row, d]
        to[0] = ds[d, D_RUNNING_BLOCKS]
        to[1] = ds[d, D_INFLIGHT_BLOCKS]
        to[2] = ds[d, D_QUEUED_BLOCKS]
        to[3] = ds[d, D_QUEUED]
        to[4] = ds[d, D_N_RUNNING]
        to[5] = ds[d, D_TOKENS]
        to[6] = ds[d, D_RECEIVING]
        to[7] = ds[d, D_RECEIVING_TOKENS]
        to[8] = ds[d, D_STEPS]
        to[9] = moments[d, 0]
        to[10] = moments[d, 1]
        to[11] = moments[d, 2]
        to[12] = moments[d, 3]
        to[13] = ds[d, D_GENERATED]
        to[14] = moments[d, 4]
        to[15] = ds[d, D_N_PREEMPTED]
