"""Pools so small that their replay can be computed by hand.

A P step takes 10 ms + 0.1 ms a token + 1 µs per chunk · context, a D step 5 ms, a port moves one token a ms, blocks
hold 16 tokens, chunks 64.
"""

from __future__ import annotations

import numpy as np

from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from policies.lengths import constant_length
from policies.policy import ClassPolicy, Policy
from policies.twin.cluster import Cluster, Discipline, Node, RouterSetup
from policies.twin.outcomes import Replay
from policies.twin.reference.pool import replay_reference
from policies.twin.workload import Workload

MS = 1_000_000
BLOCK = 16
PORT_GBPS = 0.008  # 1,000 bytes a ms
POLICY = Policy(family="round_robin", classes=(ClassPolicy(name="any"),))


def laws(alpha_s: float = 0.0) -> Estimators:
    return Estimators(
        length=constant_length(16.0),
        prefill=one_type(StepLaw(coef=(10e-3, 1e-4, 0.0, 1e-6, 0.0))),
        decode=one_type(StepLaw(coef=(5e-3, 0.0, 0.0, 0.0))),
        transfer=TransferLaw(alpha_s={"local": alpha_s, "cross": alpha_s}, efficiency={"local": 1.0, "cross": 1.0}),
    )


def cluster(
    *,
    prefill_blocks: tuple[int, ...] = (64,),
    decode_blocks: tuple[int, ...] = (64,),
    discipline: Discipline | None = None,
    routers: RouterSetup | None = None,
) -> Cluster:
    return Cluster(
        prefill=tuple(Node(f"p-{i}", "rack", blocks, PORT_GBPS) for i, blocks in enumerate(prefill_blocks)),
        decode=tuple(Node(f"d-{i}", "rack", blocks, PORT_GBPS) for i, blocks in enumerate(decode_blocks)),
        uplinks=(),
        block_tokens=BLOCK,
        kv_bytes_per_token=1_000,
        discipline=discipline or Discipline(chunk_tokens=64),
        routers=routers or RouterSetup(),
    )


def workload(
    *rows: tuple[int, int, int], pairs: list[tuple[int, int]], blocks: list[list[int]] | None = None
) -> Workload:
    """Rows are (arrival in ms, prompt tokens, output tokens); pair (-1, -1) = the policy decides."""
    listed = blocks or [[] for _ in rows]
    return Workload(
        arrival_ns=np.array([row[0] * MS for row in rows], np.int64),
        prompt_tokens=np.array([row[1] for row in rows], np.int32),
        output_tokens=np.array([row[2] for row in rows], np.int32),
        class_index=np.zeros(len(rows), np.int32),
        block_offset=np.cumsum([0, *(len(ids) for ids in listed)]).astype(np.int64),
        block_ids=np.array([block for ids in listed for block in ids], np.int32),
        forced_prefill=np.array([pair[0] for pair in pairs], np.int32),
        forced_decode=np.array([pair[1] for pair in pairs], np.int32),
        scored=np.ones(len(rows), np.bool_),
    )


def run(pool: Cluster, load: Workload, *, alpha_s: float = 0.0, estimated: int = 16, seed: int = 0) -> Replay:
    known = np.full(load.requests, estimated, np.int32)
    return replay_reference(pool, laws(alpha_s), POLICY, load, seed=seed, estimated_output=known, expected_output=known)
