"""Rows of an empty pool."""

from __future__ import annotations

import numpy as np

from policies.twin.cluster import CACHE_LOG, RouterSetup
from policies.twin.engine.arena import Arena
from policies.twin.engine.columns import (
    COUNTERS,
    D_END,
    D_LAND_HEAD,
    D_LAND_TAIL,
    D_PARTIAL,
    D_PREEMPTED_HEAD,
    D_QUEUE_HEAD,
    D_QUEUE_TAIL,
    D_STALLED_HEAD,
    DECODE_COLUMNS,
    FLOW_COLUMNS,
    NEVER,
    NEXT_FLOW,
    P_CUT,
    P_END,
    P_RELEASE_HEAD,
    P_RELEASE_TAIL,
    PREFILL_COLUMNS,
    X_NEXT,
)
from policies.twin.engine.parts import Cache, Int64
from policies.twin.segments import Segments


def idle_nodes(prefill: int, decode: int) -> tuple[Int64, Int64]:
    """Rows `ps` and `ds` of an empty pool."""
    ps = np.zeros((prefill, PREFILL_COLUMNS), np.int64)
    ps[:, P_END] = NEVER
    ps[:, [P_RELEASE_HEAD, P_RELEASE_TAIL, P_CUT]] = -1
    ds = np.zeros((decode, DECODE_COLUMNS), np.int64)
    ds[:, D_END] = NEVER
    ds[:, [D_QUEUE_HEAD, D_QUEUE_TAIL, D_LAND_HEAD, D_LAND_TAIL, D_PREEMPTED_HEAD]] = -1
    ds[:, [D_PARTIAL, D_STALLED_HEAD]] = -1
    return ps, ds


def counter_slots() -> Int64:
    """Counters of a replay that has not begun."""
    counters = np.zeros(COUNTERS, np.int64)
    counters[NEXT_FLOW] = NEVER
    return counters


def no_flows(memory: Arena, rows: int) -> Int64:
    """`Links.flows`, all rows free."""
    flows = memory.empty("flows", (rows, FLOW_COLUMNS), np.int64)
    flows[:, X_NEXT] = np.arange(1, rows + 1)
    return flows


def empty_cache(memory: Arena, nodes: int, blocks: int, segments: Segments, setup: RouterSetup, seed: int) -> Cache:
    """Empty caches of P nodes with at most so many blocks each."""
    total = int(segments.start[-1])
    live = setup.cache_period_ns == 0 and setup.cache_delay_ns == 0 and setup.cache_loss_frac == 0.0
    # Every run has a block.
    runs = memory.empty("runs", (nodes, min(blocks, total) + 1, 7), np.int64)
    runs[:, 0] = 0
    return Cache(
        offset=segments.offset,
        refs=segments.refs,
        start=segments.start,
        segments=memory.zeros("segments", (len(segments.start) - 1, nodes, 4), np.int32),
        runs=runs,
        hits=np.zeros(nodes, np.int64),
        seen=memory.zeros("seen", (0 if live else total, (nodes + 63) // 64), np.uint64),
        log=memory.empty("cache_log", (0 if live else CACHE_LOG, 5), np.int64),
        log_at=np.zeros(3 + nodes, np.int64),
        period=setup.cache_period_ns,
        delay=setup.cache_delay_ns,
        loss_frac=setup.cache_loss_frac,
        seed=np.uint64(seed),
    )
