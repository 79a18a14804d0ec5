"""Cluster, laws and workload as the arrays that kernels read."""

from __future__ import annotations

import numpy as np

from features.errors import TwinError
from models.portable.estimators import Estimators
from models.portable.transfer import uplink
from policies.kernel_types import Int64, LawArrays, PoolArrays
from policies.law_arrays import law_arrays
from policies.twin.cluster import Cluster
from policies.twin.engine import parts
from policies.twin.workload import Workload

BYTES_PER_S_PER_GBPS = 1e9 / 8
MOST_PRIORITIES = 64
CANCELLED, TOO_LARGE, FORCED, DECIDE = 3, 2, 1, 0


def pool_arrays(cluster: Cluster) -> PoolArrays:
    """The pool's fixed facts; racks and uplinks by index."""
    racks = {name: k for k, name in enumerate(cluster.racks)}
    uplinks = {(racks[u.from_rack], racks[u.to_rack]): k for k, u in enumerate(cluster.uplinks)}
    prefill_rack = np.array([racks[n.rack] for n in cluster.prefill], np.int64)
    decode_rack = np.array([racks[n.rack] for n in cluster.decode], np.int64)
    path_uplink = np.full((len(prefill_rack), len(decode_rack)), -1, np.int64)
    path_kind = np.zeros_like(path_uplink)
    for p, rack_p in enumerate(prefill_rack):
        for d, rack_d in enumerate(decode_rack):
            if rack_p != rack_d:
                path_kind[p, d] = 1
                path_uplink[p, d] = uplinks.get((int(rack_p), int(rack_d)), -1)
    return PoolArrays(
        prefill_rack=prefill_rack,
        decode_rack=decode_rack,
        prefill_blocks=np.array([n.blocks for n in cluster.prefill], np.int64),
        decode_blocks=np.array([n.blocks for n in cluster.decode], np.int64),
        path_uplink=path_uplink,
        path_kind=path_kind,
        block_tokens=cluster.block_tokens,
        kv_bytes_per_token=cluster.kv_bytes_per_token,
        chunk_tokens=cluster.discipline.chunk_tokens,
    )


def cluster_laws(laws: Estimators, cluster: Cluster) -> LawArrays:
    """Laws spread over the pool's nodes, ports in bytes/s."""
    return law_arrays(
        laws,
        [(n.name, n.port_gbps * BYTES_PER_S_PER_GBPS) for n in cluster.prefill],
        [(n.name, n.port_gbps * BYTES_PER_S_PER_GBPS) for n in cluster.decode],
        [(uplink(u.from_rack, u.to_rack), u.gbps * BYTES_PER_S_PER_GBPS) for u in cluster.uplinks],
    )


def check_workload(workload: Workload) -> None:
    """TwinError for requests that no replay can take."""
    n = workload.requests
    if n and np.any(workload.arrival_ns[1:] < workload.arrival_ns[:-1]):
        raise TwinError("arrivals must ascend", hint="sort the workload by arrival_ns")
    if n and int(workload.prompt_tokens.min()) < 1:
        raise TwinError("`prompt_tokens >= 1` must hold", value=int(workload.prompt_tokens.min()))
    if (workload.parent is None) != (workload.think_ns is None):
        raise TwinError("`parent` and `think_ns` must be given together", place="workload")
    if workload.parent is not None and workload.think_ns is not None:
        late = np.flatnonzero(workload.parent >= np.arange(n))
        if len(late):
            raise TwinError("a turn must stand after the one that it follows", value=int(late[0]), place="parent")
        least = workload.think_ns[workload.parent >= 0].min(initial=1)
        if least < 1:
            raise TwinError("`think_ns >= 1` must hold", value=int(least))


def ranks(workload: Workload, cluster: Cluster) -> Int64:
    """The priorities that order P queues, ascending; a request's queue is the place of its own."""
    if workload.priority is None or cluster.discipline.queue_order == "fifo":
        return np.zeros(1, np.int64)
    different = np.unique(np.append(workload.priority, 0)).astype(np.int64)
    if len(different) > MOST_PRIORITIES:
        raise TwinError("at most 64 different priorities", value=len(different), hint="group them")
    return different


def kinds(workload: Workload, cluster: Cluster, first: int, last: int) -> Int64:
    """Who decides about requests `first` to `last`: DECIDE, FORCED TOO_LARGE or CANCELLED before it arrives."""
    b = cluster.block_tokens
    prompt = workload.prompt_tokens[first:last].astype(np.int64)
    prompt_blocks = (prompt + b - 1) // b
    all_blocks = (prompt + np.maximum(workload.output_tokens[first:last], 1) + b - 1) // b
    prefill_blocks = np.array([node.blocks for node in cluster.prefill], np.int64)
    decode_blocks = np.array([node.blocks for node in cluster.decode], np.int64)
    forced_p, forced_d = workload.forced_prefill[first:last], workload.forced_decode[first:last]
    forced = (forced_p >= 0) & (forced_d >= 0)
    room_p = np.where(forced, prefill_blocks[np.where(forced, forced_p, 0)], prefill_blocks.max())
    room_d = np.where(forced, decode_blocks[np.where(forced, forced_d, 0)], decode_blocks.max())
    kind = np.where(forced, FORCED, DECIDE)
    kind[(prompt_blocks > room_p) | (all_blocks > room_d)] = TOO_LARGE
    if workload.cancel_ns is not None:
        cancel_ns = workload.cancel_ns[first:last]
        kind[(cancel_ns >= 0) & (cancel_ns < workload.arrival_ns[first:last])] = CANCELLED
    return kind


def course_part(workload: Workload) -> parts.Course:
    """Cancellations of requests that arrive, and turns that follow others."""
    patience = np.zeros(0, np.int64)
    if workload.cancel_ns is not None:
        patience = np.where(workload.cancel_ns < 0, -1, np.maximum(workload.cancel_ns - workload.arrival_ns, -1))
    child, sibling, think = np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64)
    follows = np.zeros(0, np.int64)
    if workload.parent is not None and workload.think_ns is not None:
        n = workload.requests
        follows = np.flatnonzero(workload.parent >= 0)
        child, sibling = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        for turn in follows[::-1]:
            sibling[turn] = child[workload.parent[turn]]
            child[workload.parent[turn]] = turn
        think = np.where(workload.parent >= 0, workload.think_ns, -1)
    return parts.Course(
        patience=patience,
        cancels=np.zeros((int(np.count_nonzero(patience >= 0)), 2), np.int64),
        child=child,
        sibling=sibling,
        think=think,
        followers=np.zeros((len(follows), 2), np.int64),
        least_think=int(think[follows].min()) if len(follows) else 1,
    )
