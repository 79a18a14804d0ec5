"""The same pool in the twin: its nodes, its discipline, its true laws, and a replay of what it replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.fidelity.logs import Int64, Logged
from benchmarks.fidelity.wheel import BYTES_PER_TOKEN, GB_PER_S, Run
from features.kv import BITS_PER_BYTE
from features.readers.mooncake import BLOCK_TOKENS
from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from policies.lengths import constant_length
from policies.policy import ClassPolicy, Policy, default_policy
from policies.twin.cluster import Cluster, Node
from policies.twin.outcomes import Replay
from policies.twin.profiles import PROFILES
from policies.twin.replay import replay

MS = 1e-3
PREFILL_MS = (16.50142, 1.518344e-2, 4.209989e-7)
DECODE_MS = (5.74, 54.01, -25.74)
"""The default timing of the wheel's engine, which is public: of 1, T, T², and of 1, p, p²; p = tokens / capacity."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the pool or the twin made of n requests; ns since the replay's 0, shape (n,)."""

    arrival_ns: Int64
    first_ns: Int64
    last_ns: Int64
    output: Int64
    reused: Int64


def cluster(run: Run, blocks: int) -> Cluster:
    """The pool of a run; names as its logs have them."""
    gbps = GB_PER_S * BITS_PER_BYTE

    def nodes(phase: str, count: int) -> tuple[Node, ...]:
        return tuple(Node(f"{phase}-{at}/dp0", "", blocks, gbps) for at in range(count))

    return Cluster(
        nodes("prefill", run.prefill),
        nodes("decode", run.decode),
        (),
        BLOCK_TOKENS,
        BYTES_PER_TOKEN,
        PROFILES["dynamo-replay"],
    )


def true_laws(blocks: int) -> Estimators:
    """What the pool's engine computes with."""
    tokens = float(blocks * BLOCK_TOKENS)
    a, b, c = DECODE_MS
    return Estimators(
        length=constant_length(1.0),
        prefill=one_type(StepLaw((*(value * MS for value in PREFILL_MS), 0.0, 0.0))),
        decode=one_type(StepLaw((a * MS, 0.0, b / tokens * MS, c / tokens / tokens * MS), token_cap=tokens)),
        transfer=TransferLaw({"local": 0.0, "cross": 0.0}, {"local": 1.0, "cross": 1.0}, contention="none"),
    )


def policy(family: str) -> Policy:
    """A router that chooses D when the prompt is handed over, as the pool's does."""
    plain = default_policy([ClassPolicy("default", ttft_target_s=1.0)])
    return replace(plain, family=family, decode_moment="handoff")


def run_twin(
    pool: Cluster, laws: Estimators, logged: Logged, *, forced: bool, family: str = "round_robin", seed: int = 0
) -> Replay:
    """The replay of what the pool replayed; `forced`: on the workers that the pool chose."""
    workload = logged.workload
    if not forced:
        free = np.full(workload.requests, -1, np.int32)
        workload = replace(workload, forced_prefill=free, forced_decode=free)
    ones = np.ones(workload.requests, np.int32)
    return replay(pool, laws, policy(family), workload, seed=seed, estimated_output=ones, expected_output=ones)


def stage_ns(result: Replay) -> dict[str, Int64]:
    """Stage -> time of every request."""
    return {
        "prefill_admit": result.prefill_started_ns,
        "source_held": result.prefill_finished_ns,
        "reserve": result.transfer_started_ns,
        "activate": result.activated_ns,
        "first_token": result.first_token_ns,
        "last_token": result.finished_ns,
        "source_release": result.released_ns,
    }


def outcome_of(logged: Logged, result: Replay | None = None) -> Outcome:
    """What the pool made of the requests, or the twin."""
    workload = logged.workload
    stages = logged.stage_ns if result is None else stage_ns(result)
    return Outcome(
        arrival_ns=workload.arrival_ns if result is None else result.arrived_ns,
        first_ns=stages["first_token"],
        last_ns=stages["last_token"],
        output=workload.output_tokens.astype(np.int64),
        reused=logged.reused if result is None else result.cached_tokens.astype(np.int64),
    )
