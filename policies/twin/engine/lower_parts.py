"""The parts of the pool that the engine works on: empty nodes and links with the pool's true laws."""

from __future__ import annotations

import math

import numpy as np

from models.portable.estimators import Estimators
from models.portable.transfer import egress, ingress, uplink
from policies.kernel_types import Float64, LawArrays, PoolArrays
from policies.law_arrays import step_arrays
from policies.twin.cluster import Cluster, Node, swap_s_per_token
from policies.twin.engine import empty, parts
from policies.twin.engine.arena import Arena
from policies.twin.engine.columns import NEVER
from policies.twin.engine.lower import ranks
from policies.twin.itl import BINS
from policies.twin.outcomes import Noise
from policies.twin.segments import segments_of
from policies.twin.workload import Int32, Int64, Workload

BITS = 8


def cache_blocks(node: Node, laws: Estimators) -> int:
    """Blocks, pinned ones among them, up to which unpinned blocks stay on a P."""
    law = laws.cache.get(node.name)
    return node.blocks if law is None else min(node.blocks, math.floor(law.capacity_blocks))


def ttl_ns(node: Node, laws: Estimators) -> int:
    """How long unpinned blocks stay on a P, NEVER = as long as there is room."""
    law = laws.cache.get(node.name)
    return NEVER if law is None or law.ttl_s is None else max(1, math.floor(law.ttl_s * 1e9 + 0.5))


def prefill_part(
    memory: Arena,
    cluster: Cluster,
    laws: Estimators,
    true: LawArrays,
    workload: Workload,
    noise: Noise | None,
    seed: int,
    cells: Float64,
) -> parts.Prefill:
    """Empty P nodes."""
    discipline = cluster.discipline
    priorities = len(ranks(workload, cluster))
    most = max(node.blocks for node in cluster.prefill)
    return parts.Prefill(
        ids=workload.block_ids,
        cache=empty.empty_cache(memory, len(cluster.prefill), most, segments_of(workload), cluster.routers, seed),
        queues=np.full((len(cluster.prefill) * priorities, 2), -1, np.int64),
        running=np.zeros((len(cluster.prefill), discipline.prefill_max_seqs), np.int32),
        handed=np.zeros(discipline.prefill_max_seqs, np.int32),
        blocks=np.array([node.blocks for node in cluster.prefill], np.int64),
        cache_blocks=np.array([cache_blocks(node, laws) for node in cluster.prefill], np.int64),
        ttl=np.array([ttl_ns(node, laws) for node in cluster.prefill], np.int64),
        law=true.prefill,
        noise=np.zeros(0) if noise is None else noise.prefill,
        cells=cells,
        max_seqs=discipline.prefill_max_seqs,
        chunk_tokens=discipline.chunk_tokens,
        block_tokens=cluster.block_tokens,
        seed=np.uint64(seed),
        mean_tokens=int(discipline.step_tokens == "mean"),
        priorities=priorities,
    )


def decode_part(
    memory: Arena,
    cluster: Cluster,
    laws: Estimators,
    true: LawArrays,
    workload: Workload,
    noise: Noise | None,
    seed: int,
    cells: Float64,
    ends: int,
    running: Int64,
) -> parts.Decode:
    """Empty D nodes. `ends`: answers whose end is to be kept; `running` (D, C) of zeros."""
    discipline, nodes = cluster.discipline, len(cluster.decode)
    share = discipline.share_prompt_blocks
    retain = share and discipline.in_steps
    own_first, cache = _decode_cache(memory, cluster, workload, share, retain)
    return parts.Decode(
        heap=np.zeros((nodes, discipline.decode_max_seqs, 2), np.int64),
        growth=np.zeros((nodes, cluster.block_tokens), np.int32),
        fresh=np.zeros((nodes, 2 * discipline.decode_max_seqs), np.int32),
        moments=np.zeros((nodes, 5), np.int64),
        blocks=np.array([node.blocks for node in cluster.decode], np.int64),
        running_by_class=running,
        ended=memory.empty("ended", (ends,), np.int32),
        gone=memory.empty("gone", (workload.requests,), np.int32),
        law=true.decode,
        recompute=step_arrays(laws.prefill, [node.name for node in cluster.decode]),
        noise=np.zeros(0) if noise is None else noise.decode,
        cells=cells,
        max_seqs=discipline.decode_max_seqs,
        reservations=discipline.reservations_per_boundary,
        block_tokens=cluster.block_tokens,
        release_on_activation=int(discipline.release == "activation"),
        seed=np.uint64(seed),
        ids=workload.block_ids,
        own_first=own_first,
        cache=cache,
        copies=memory.zeros("copies", (len(workload.block_ids) if share else 0,), np.int8),
        share=int(share),
        retain=int(retain),
        lag=discipline.growth_lag,
        reserve_first=int(discipline.boundary_order == "reserve_first"),
        in_steps=int(discipline.in_steps),
        chunk_tokens=discipline.chunk_tokens,
        itl=np.zeros((running.shape[1], BINS), np.int64),
        swap_s=swap_s_per_token(cluster) if discipline.preemption == "swap" else 0.0,
        readmit_first_preempted=int(discipline.readmission == "first_preempted"),
        admission_reserve=discipline.admission_reserve_blocks,
        books=("blocks", "booked", "staged").index(discipline.admission),
        stage_tokens=discipline.stage_tokens,
        first_on_p=int(discipline.first_on_prefill),
    )


def _decode_cache(
    memory: Arena, cluster: Cluster, workload: Workload, share: bool, retain: bool
) -> tuple[Int64, Int32]:
    """`Decode.own_first` and `Decode.cache` of empty nodes."""
    if not share:
        return np.zeros(0, np.int64), np.zeros((0, 1, 3), np.int32)
    blocks = int(workload.block_ids.max()) + 1 if len(workload.block_ids) else 0
    own_first = np.zeros(0, np.int64)
    if retain:
        b = cluster.block_tokens
        listed = np.minimum(workload.prompt_tokens // b, np.diff(workload.block_offset))
        own = (workload.prompt_tokens.astype(np.int64) + workload.output_tokens) // b + 1 - listed
        own_first = blocks + np.cumsum(own) - own
        blocks += int(own.sum())
    cache = memory.empty("decode_cache", (len(cluster.decode), blocks + 1, 3), np.int32)
    cache[...] = -1
    cache[:, blocks, :2] = blocks
    return own_first, cache


def link_part(
    memory: Arena,
    cluster: Cluster,
    laws: Estimators,
    true: LawArrays,
    pool: PoolArrays,
    noise: Noise | None,
    seed: int,
    requests: int,
) -> parts.Links:
    """Ports and uplinks without flows."""
    transfer, uplinks = laws.transfer, max(len(cluster.uplinks), 1)
    # Every transfer has at least one block of its D, unless all of its blocks may be others' too.
    rows = requests
    if not cluster.discipline.share_prompt_blocks:
        rows = min(requests, sum(node.blocks for node in cluster.decode))
    return parts.Links(
        flows=empty.no_flows(memory, rows),
        flow_rates=memory.empty("flow_rates", (rows, 2), np.float64),
        flow_heap=memory.empty("flow_heap", (rows,), np.int64),
        first_flow=np.full((3, max(*pool.path_uplink.shape, uplinks)), -1, np.int64),
        on_uplink=np.zeros(uplinks, np.int64),
        own_flows=np.zeros((cluster.routers.count, uplinks), np.int64),
        egress=np.array([n.port_gbps / BITS * transfer.port(egress(n.name)) for n in cluster.prefill]),
        ingress=np.array([n.port_gbps / BITS * transfer.port(ingress(n.name)) for n in cluster.decode]),
        uplink=np.array(
            [u.gbps / BITS * transfer.port(uplink(u.from_rack, u.to_rack)) for u in cluster.uplinks], np.float64
        ),
        efficiency=true.efficiency,
        path_uplink=pool.path_uplink,
        path_kind=pool.path_kind,
        alpha_s=true.alpha_s,
        noise=np.zeros(0) if noise is None else noise.transfer,
        descriptor_s=true.descriptor_s,
        descriptors_per_block=true.descriptors_per_block,
        wire_frac=true.wire_frac,
        overlap_frac=true.overlap_frac,
        last_frac=true.last_frac,
        handshake_ns=transfer.handshake_s * 1e9,
        met=np.zeros(pool.path_uplink.shape, np.int64),
        alone=int(cluster.discipline.contention == "none"),
        spare=int(cluster.discipline.decode_prefix_reuse),
        block_tokens=cluster.block_tokens,
        kv_bytes_per_token=cluster.kv_bytes_per_token,
        routers=cluster.routers.count,
        release_on_activation=int(cluster.discipline.release == "activation"),
        seed=np.uint64(seed),
    )
