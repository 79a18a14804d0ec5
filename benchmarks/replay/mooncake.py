"""The Mooncake conversation trace on pools of P + D nodes: the cells that the twin's speed is judged on."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import polars as pl

from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from policies.lengths import constant_length
from policies.policy import ClassPolicy, Policy, default_policy
from policies.twin.cluster import Cluster, Discipline, Node, RouterSetup
from policies.twin.segments import Segments, know_segments, segments_of
from policies.twin.transforms import scale_load
from policies.twin.workload import Workload

SHARED = Path(os.environ.get("ROUTECAL_SHARED", Path(__file__).resolve().parents[3] / "shared"))
TRACE = SHARED / "data" / "real" / "mooncake-fast25" / "conversation_trace.jsonl"
BLOCK, BLOCKS, KV_BYTES, PORT_GBPS, GUESS = 512, 2048, 327_680, 160.0, 350
GAP_NS = 60_000_000_000
"""Between two copies of the trace."""
_CAPACITY = float(BLOCK * BLOCKS)

# Public constants of the timing model of NVIDIA Dynamo's offline replay, so that both engines serve one pool.
LAWS = Estimators(
    length=constant_length(float(GUESS)),
    prefill=one_type(StepLaw((16.50142e-3, 1.518344e-5, 4.209989e-10, 0.0, 0.0))),
    decode=one_type(
        StepLaw((5.74e-3, 0.0, 54.01e-3 / _CAPACITY, -25.74e-3 / _CAPACITY / _CAPACITY), token_cap=_CAPACITY)
    ),
    transfer=TransferLaw({"local": 0.0, "cross": 0.0}, {"local": 1.0, "cross": 1.0}),
)


def read_trace(path: Path = TRACE) -> Workload:
    """The trace with its own clock, coarse ticks and all, as other engines replay it."""
    rows = pl.read_ndjson(path)
    kept = rows.select(pl.col("hash_ids").list.head(pl.col("input_length") // BLOCK))["hash_ids"]
    ids = np.unique(kept.explode(empty_as_null=False).to_numpy(), return_inverse=True)[1]
    n = rows.height
    free = np.full(n, -1, np.int32)
    return Workload(
        arrival_ns=(rows["timestamp"].to_numpy() * 1_000_000).astype(np.int64),
        prompt_tokens=rows["input_length"].to_numpy().astype(np.int32),
        output_tokens=rows["output_length"].to_numpy().astype(np.int32),
        class_index=np.zeros(n, np.int32),
        block_offset=np.concatenate([[0], np.cumsum(kept.list.len().to_numpy())]).astype(np.int64),
        block_ids=ids.astype(np.int32),
        forced_prefill=free,
        forced_decode=free,
        scored=np.ones(n, np.bool_),
    )


def head(workload: Workload, n: int) -> Workload:
    """The first n requests; blocks keep their ids."""
    cut = {f.name: getattr(workload, f.name)[:n] for f in fields(Workload) if f.name in _BY_REQUEST}
    ids = workload.block_ids[: workload.block_offset[n]]
    return replace(workload, **cut, block_offset=workload.block_offset[: n + 1], block_ids=ids)


_BY_REQUEST = (
    "arrival_ns",
    "prompt_tokens",
    "output_tokens",
    "class_index",
    "forced_prefill",
    "forced_decode",
    "scored",
)


def copies(workload: Workload, n: int) -> Workload:
    """n requests: the trace again and again, each copy later and with blocks of its own."""
    times = -(-n // workload.requests)
    copy = np.arange(times)
    span = int(workload.arrival_ns[-1]) + GAP_NS
    blocks, distinct = len(workload.block_ids), int(workload.block_ids.max()) + 1
    ids = np.empty(times * blocks, np.int32)
    np.add(copy[:, None] * distinct, workload.block_ids, out=ids.reshape(times, blocks), casting="unsafe")
    offset = np.empty(times * workload.requests + 1, np.int64)
    offset[-1] = times * blocks
    np.add(copy[:, None] * blocks, workload.block_offset[:-1], out=offset[:-1].reshape(times, -1))
    tiled = {name: np.tile(getattr(workload, name), times) for name in _BY_REQUEST if name != "arrival_ns"}
    arrival = (copy[:, None] * span + workload.arrival_ns).reshape(-1)
    made = head(replace(workload, **tiled, arrival_ns=arrival, block_offset=offset, block_ids=ids), n)
    know_segments(made, _repeated(segments_of(workload), times, n))
    return made


def _repeated(one: Segments, times: int, n: int) -> Segments:
    """The segments of n requests of the copies: cutting millions of prompts anew takes gigabytes."""
    copy = np.arange(times)[:, None]
    refs, blocks, distinct = len(one.refs), int(one.start[-1]), len(one.start) - 1
    offset = np.append((copy * refs + one.offset[:-1]).reshape(-1), times * refs)[: n + 1]
    start = np.append((copy * blocks + one.start[:-1]).reshape(-1), times * blocks)
    repeated = np.empty((times, refs), np.int32)
    np.add(copy * distinct, one.refs, out=repeated, casting="unsafe")
    return Segments(offset, repeated.reshape(-1)[: offset[-1]], start)


def faster(workload: Workload, factor: float) -> Workload:
    """Arrivals `factor` times as fast."""
    return scale_load(workload, factor)


def pool(prefill: int, decode: int) -> Cluster:
    """P + D nodes in one rack behind four routers.

    Routers see the loads of the last 50 ms tick, 50 ms late, and the prefix caches 50 ms late.
    """
    return Cluster(
        tuple(Node(f"p{k}", "a", BLOCKS, PORT_GBPS) for k in range(prefill)),
        tuple(Node(f"d{k}", "a", BLOCKS, PORT_GBPS) for k in range(decode)),
        (),
        BLOCK,
        KV_BYTES,
        Discipline(reservations_per_boundary=1, release="activation"),
        RouterSetup(4, 50_000_000, 50_000_000, cache_delay_ns=50_000_000),
    )


def policy(family: str = "routecal") -> Policy:
    """The default policy of a family."""
    return default_policy([ClassPolicy("default", ttft_target_s=2.0, tpot_target_s=0.03)], family=family)
