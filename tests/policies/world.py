"""A small pool, workloads and replays made by hand, for the tests of search and evidence."""

from __future__ import annotations

import numpy as np

from policies.objective import ClassTarget, Goal
from policies.twin.cluster import Cluster, Node
from policies.twin.outcomes import Counters, Replay
from policies.twin.workload import Workload

GOAL = Goal((ClassTarget("chat", ttft_s=1.0, tpot_s=0.03), ClassTarget("batch", ttft_s=4.0, tpot_s=None, weight=0.5)))


def cluster(prefill: int = 2, decode: int = 2) -> Cluster:
    """P and D in one rack, equal ports."""
    return Cluster(
        prefill=tuple(Node(f"p{i}", "a", 1000, 100.0) for i in range(prefill)),
        decode=tuple(Node(f"d{i}", "a", 1000, 100.0) for i in range(decode)),
        uplinks=(),
        block_tokens=64,
        kv_bytes_per_token=1000,
    )


def workload(requests: int, *, rate_per_s: float = 10.0, seed: int = 0, warm_up: int = 0) -> Workload:
    """Poisson arrivals, two classes, no known prefixes."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1.0 / rate_per_s, requests)
    return Workload(
        arrival_ns=np.floor(np.cumsum(gaps) * 1e9).astype(np.int64),
        prompt_tokens=rng.integers(100, 4000, requests).astype(np.int32),
        output_tokens=rng.integers(2, 400, requests).astype(np.int32),
        class_index=(rng.random(requests) < 0.3).astype(np.int32),
        block_offset=np.zeros(requests + 1, np.int64),
        block_ids=np.zeros(0, np.int32),
        forced_prefill=np.full(requests, -1, np.int32),
        forced_decode=np.full(requests, -1, np.int32),
        scored=np.arange(requests) >= warm_up,
    )


def replay_of(load: Workload, ttft_s: np.ndarray, tpot_s: np.ndarray, status: np.ndarray | None = None) -> Replay:
    """A replay in which every request has the given latencies; requests of another status than 0 reached nothing."""
    n = load.requests
    state = np.zeros(n, np.int32) if status is None else status.astype(np.int32)
    reached = state == 0
    first = load.arrival_ns + np.round(ttft_s * 1e9).astype(np.int64)
    finished = first + np.round(tpot_s * np.maximum(load.output_tokens - 1, 0) * 1e9).astype(np.int64)

    def when(value: np.ndarray) -> np.ndarray:
        return np.where(reached, value, -1).astype(np.int64)

    return Replay(
        arrived_ns=load.arrival_ns,
        status=state,
        prefill_node=np.where(reached, np.arange(n) % 2, -1).astype(np.int32),
        decode_node=np.where(reached, 0, -1).astype(np.int32),
        prefill_started_ns=when(load.arrival_ns),
        prefill_finished_ns=when(first),
        transfer_started_ns=when(first),
        transfer_drained_ns=when(first),
        transfer_finished_ns=when(first),
        activated_ns=when(first),
        released_ns=when(first),
        first_token_ns=when(first),
        finished_ns=when(finished),
        cached_tokens=np.where(reached, 64, 0).astype(np.int32),
        sent_tokens=np.where(reached, load.prompt_tokens, 0).astype(np.int32),
        preemptions=np.zeros(n, np.int32),
        estimated_output=np.zeros(n, np.int32),
        expected_output=np.zeros(n, np.int32),
        predicted_ttft_s=np.full(n, np.nan),
        predicted_tpot_s=np.full(n, np.nan),
        counters=Counters(*[0] * len(Counters._fields)),
    )
