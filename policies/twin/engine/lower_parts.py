"""The parts of the pool that the engine works on: empty nodes and links with the pool's true laws."""

from __future__ import annotations

import math

import numpy as np

from models.portable.estimators import Estimators
from models.portable.transfer import egress, ingress, uplink
from policies.kernel_types import Float64, LawArrays, PoolArrays
from policies.law_arrays import step_arrays
from policies.twin.cluster import Cluster, Node
from policies.twin.engine import empty, parts
from policies.twin.outcomes import Noise
from policies.twin.workload import Int32

BITS = 8


def cache_blocks(node: Node, laws: Estimators) -> int:
    """Blocks, pinned ones among them, up to which unpinned blocks stay on a P."""
    law = laws.cache.get(node.name)
    return node.blocks if law is None else min(node.blocks, math.floor(law.capacity_blocks))


def prefill_part(
    cluster: Cluster, laws: Estimators, true: LawArrays, ids: Int32, noise: Noise | None, seed: int, cells: Float64
) -> parts.Prefill:
    """Empty P nodes."""
    discipline = cluster.discipline
    return parts.Prefill(
        ids=ids,
        cache=empty.empty_cache(len(cluster.prefill), ids),
        running=np.zeros((len(cluster.prefill), discipline.prefill_max_seqs), np.int32),
        blocks=np.array([node.blocks for node in cluster.prefill], np.int64),
        cache_blocks=np.array([cache_blocks(node, laws) for node in cluster.prefill], np.int64),
        law=true.prefill,
        noise=np.zeros(0) if noise is None else noise.prefill,
        cells=cells,
        max_seqs=discipline.prefill_max_seqs,
        chunk_tokens=discipline.chunk_tokens,
        block_tokens=cluster.block_tokens,
        seed=np.uint64(seed),
    )


def decode_part(
    cluster: Cluster, laws: Estimators, true: LawArrays, noise: Noise | None, seed: int, cells: Float64, ends: int
) -> parts.Decode:
    """Empty D nodes. `ends`: answers whose end is to be kept."""
    discipline, nodes = cluster.discipline, len(cluster.decode)
    return parts.Decode(
        heap=np.zeros((nodes, discipline.decode_max_seqs, 2), np.int64),
        growth=np.zeros((nodes, cluster.block_tokens), np.int32),
        fresh=np.zeros((nodes, discipline.decode_max_seqs), np.int32),
        moments=np.zeros((nodes, 5), np.int64),
        blocks=np.array([node.blocks for node in cluster.decode], np.int64),
        ended=np.zeros(ends, np.int32),
        law=true.decode,
        recompute=step_arrays(laws.prefill, [node.name for node in cluster.decode]),
        noise=np.zeros(0) if noise is None else noise.decode,
        cells=cells,
        max_seqs=discipline.decode_max_seqs,
        reservations=discipline.reservations_per_boundary,
        block_tokens=cluster.block_tokens,
        release_on_activation=int(discipline.release == "activation"),
        seed=np.uint64(seed),
    )


def link_part(
    cluster: Cluster, laws: Estimators, true: LawArrays, pool: PoolArrays, noise: Noise | None, seed: int, requests: int
) -> parts.Links:
    """Ports and uplinks without flows."""
    transfer, uplinks = laws.transfer, max(len(cluster.uplinks), 1)
    return parts.Links(
        flows=np.zeros((requests, 4), np.int64),
        flow_rates=np.zeros((requests, 2)),
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
        block_tokens=cluster.block_tokens,
        kv_bytes_per_token=cluster.kv_bytes_per_token,
        routers=cluster.routers.count,
        release_on_activation=int(cluster.discipline.release == "activation"),
        seed=np.uint64(seed),
    )
