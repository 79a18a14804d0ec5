"""Rows of an empty pool."""

from __future__ import annotations

import numpy as np

from policies.twin.engine.columns import (
    D_END,
    D_LAND_HEAD,
    D_LAND_TAIL,
    D_PREEMPTED_HEAD,
    D_QUEUE_HEAD,
    D_QUEUE_TAIL,
    NEVER,
    NEXT_FLOW,
    P_END,
    P_QUEUE_HEAD,
    P_QUEUE_TAIL,
    P_RELEASE_HEAD,
    P_RELEASE_TAIL,
)
from policies.twin.engine.parts import Int32, Int64


def idle_nodes(prefill: int, decode: int) -> tuple[Int64, Int64]:
    """Rows `ps` and `ds` of an empty pool."""
    ps = np.zeros((prefill, 18), np.int64)
    ps[:, P_END] = NEVER
    ps[:, [P_QUEUE_HEAD, P_QUEUE_TAIL, P_RELEASE_HEAD, P_RELEASE_TAIL]] = -1
    ds = np.zeros((decode, 22), np.int64)
    ds[:, D_END] = NEVER
    ds[:, [D_QUEUE_HEAD, D_QUEUE_TAIL, D_LAND_HEAD, D_LAND_TAIL, D_PREEMPTED_HEAD]] = -1
    return ps, ds


def counter_slots() -> Int64:
    """Counters of a replay that has not begun."""
    counters = np.zeros(13, np.int64)
    counters[NEXT_FLOW] = NEVER
    return counters


def empty_cache(nodes: int, ids: Int32) -> Int32:
    """`Prefill.cache` of empty caches for these prompt blocks."""
    blocks = int(ids.max()) + 1 if len(ids) else 0
    cache = np.zeros((nodes, blocks + 1, 4), np.int32)
    cache[:, blocks, :2] = blocks
    return cache
