"""Cluster, laws and workload as the arrays that kernels read."""

from __future__ import annotations

import numpy as np

from features.errors import TwinError
from models.portable.estimators import Estimators
from models.portable.transfer import uplink
from policies.kernel_types import Int64, LawArrays, PoolArrays
from policies.law_arrays import law_arrays
from policies.twin.cluster import Cluster
from policies.twin.engine import columns, parts
from policies.twin.workload import Workload

BYTES_PER_S_PER_GBPS = 1e9 / 8
TOO_LARGE, FORCED, DECIDE = 2, 1, 0


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


def request_rows(workload: Workload, cluster: Cluster) -> Int64:
    """The engine's rows of requests: the workload, and who decides."""
    n = workload.requests
    if n and np.any(np.diff(workload.arrival_ns) < 0):
        raise TwinError("arrivals must ascend", hint="sort the workload by arrival_ns")
    if n and int(workload.prompt_tokens.min()) < 1:
        raise TwinError("`prompt_tokens >= 1` must hold", value=int(workload.prompt_tokens.min()))
    q = np.full((n, columns.REQUEST_COLUMNS), -1, np.int64)
    q[:, columns.Q_BOOKING_OVER : columns.Q_PQ_NEXT] = 0
    q[:, columns.Q_MADE0 : columns.Q_STATUS] = 0
    q[:, [columns.Q_CACHED_TOKENS, columns.Q_PREEMPTIONS]] = 0
    q[:, columns.Q_ARRIVAL] = workload.arrival_ns
    q[:, columns.Q_PROMPT] = workload.prompt_tokens
    q[:, columns.Q_OUTPUT] = np.maximum(workload.output_tokens, 1)
    q[:, columns.Q_SLO_CLASS] = workload.class_index
    q[:, columns.Q_OFFSET] = workload.block_offset[:-1]
    q[:, columns.Q_OFFSET_END] = workload.block_offset[1:]
    q[:, columns.Q_FORCED_P] = workload.forced_prefill
    q[:, columns.Q_FORCED_D] = workload.forced_decode
    q[:, columns.Q_KIND] = _kinds(q, cluster)
    return q


def _kinds(q: Int64, cluster: Cluster) -> Int64:
    b = cluster.block_tokens
    prompt_blocks = (q[:, columns.Q_PROMPT] + b - 1) // b
    all_blocks = (q[:, columns.Q_PROMPT] + q[:, columns.Q_OUTPUT] + b - 1) // b
    prefill_blocks = np.array([node.blocks for node in cluster.prefill], np.int64)
    decode_blocks = np.array([node.blocks for node in cluster.decode], np.int64)
    forced_p, forced_d = q[:, columns.Q_FORCED_P], q[:, columns.Q_FORCED_D]
    forced = (forced_p >= 0) & (forced_d >= 0)
    room_p = np.where(forced, prefill_blocks[np.where(forced, forced_p, 0)], prefill_blocks.max())
    room_d = np.where(forced, decode_blocks[np.where(forced, forced_d, 0)], decode_blocks.max())
    kind = np.where(forced, FORCED, DECIDE)
    kind[(prompt_blocks > room_p) | (all_blocks > room_d)] = TOO_LARGE
    return kind


def router_part(cluster: Cluster, q: Int64, seed: int) -> tuple[Int64, parts.Routers]:
    """The engine's rows of routers, and their part; writes each request's tick into `q`.

    Ticks: the newest one that a decision can use, and the one before it (growth and release are over one period).
    """
    setup = cluster.routers
    n = len(q)
    rs = np.zeros((setup.count, 7), np.int64)
    rs[:, columns.R_LAST_TIME] = -1
    ticks: list[Int64] = []
    first = 0
    for router in range(setup.count):
        mine = np.arange(router, n, setup.count)
        mine = mine[q[mine, columns.Q_KIND] == DECIDE]
        times = np.zeros(0, np.int64)
        if setup.period_ns > 0 and len(mine):
            phase = router * setup.period_ns // setup.count
            # usable means strictly before now - delay: the newest tick is the last one at or before now - delay - 1
            k = (q[mine, columns.Q_ARRIVAL] - setup.delay_ns - 1 - phase) // setup.period_ns
            both = np.unique(np.concatenate([k, k - 1]))
            times = both[both >= 0] * setup.period_ns + phase
            known = k >= 0
            q[mine[known], columns.Q_SAMPLE] = first + np.searchsorted(times, k[known] * setup.period_ns + phase)
        ticks.append(times)
        rs[router, [columns.R_SAMPLE_FIRST, columns.R_SAMPLE_END, columns.R_SAMPLE_DONE]] = (
            first,
            first + len(times),
            first,
        )
        first += len(times)
    slots = 1 if setup.period_ns == 0 else setup.delay_ns // setup.period_ns + 4
    prefill, decode = len(cluster.prefill), len(cluster.decode)
    part = parts.Routers(
        sample_time=np.concatenate(ticks),
        ring_p=np.zeros((setup.count, slots, prefill, 4)),
        ring_d=np.zeros((setup.count, slots, decode, 12)),
        totals=np.zeros((setup.count, decode, 2), np.int64),
        kv_rates=np.full((setup.count, decode, 2), np.nan),
        booked=np.zeros((setup.count, n // setup.count + 1), np.int32),
        predicted=np.full((n, 2), np.nan),
        replicas=setup.count,
        period=setup.period_ns,
        lease=setup.lease_ns,
        seed=np.uint64(seed),
    )
    return rs, part
