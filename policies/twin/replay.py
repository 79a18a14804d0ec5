"""The twin's front door: replay a workload on a cluster under a policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.portable.estimators import Estimators
from policies.compiled import one_compiler
from policies.families.arrays import policy_arrays
from policies.kernel_types import TERMS, Scratch, ViewArrays
from policies.lengths import LengthRows, length_rows
from policies.policy import Policy
from policies.twin.cluster import Cluster
from policies.twin.engine import columns, empty, parts
from policies.twin.engine.loop import run
from policies.twin.engine.lower import cluster_laws, pool_arrays, request_rows, router_part
from policies.twin.engine.lower_lengths import fixed_estimates, length_part
from policies.twin.engine.lower_parts import decode_part, link_part, prefill_part
from policies.twin.outcomes import Counters, Noise, Replay
from policies.twin.workload import Int32, Workload
from policies.view import DECODE_COLUMNS, PREFILL_COLUMNS

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

_COMPILED: set[str] = set()


@dataclass(frozen=True, slots=True)
class Recording:
    """What to write down beside the requests: polls at these times, all candidates of these requests, step cells."""

    poll_ns: Int64
    decision_requests: Int64
    cells: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """`polls_*`: (polls, nodes, columns of columns.POLL_P / POLL_D), cumulative columns since the replay's start.

    `decision_*`: one row per request of `Recording.decision_requests`; NaN age = never sampled, NaN scores = none.
    `prefill_cells`, `decode_cells`: (nodes, bins, bins, 4) sums of `parts.Recorder`.
    """

    polls_prefill: Int64
    polls_decode: Int64
    decision_scores: Float64
    decision_terms: Float64
    decision_age_s: Float64
    prefill_cells: Float64
    decode_cells: Float64


def replay(
    cluster: Cluster,
    laws: Estimators,
    policy: Policy,
    workload: Workload,
    *,
    seed: int,
    lengths: LengthRows | None = None,
    estimated_output: Int32 | None = None,
    expected_output: Int32 | None = None,
    decision_laws: Estimators | None = None,
    noise: Noise | None = None,
) -> Replay:
    """Replay; `laws` drive the pool, `decision_laws` (default: the same) are what its routers believe.

    Routers book by the length law that they believe; `lengths` are its rows if they are there already. A pool that
    books otherwise is given `estimated_output` (the class's booking quantile) and `expected_output` (the median), fixed
    tokens of shape (requests,). Raises TwinError if workload and cluster do not fit each other.
    """
    result, _ = replay_recorded(
        cluster,
        laws,
        policy,
        workload,
        seed=seed,
        lengths=lengths,
        estimated_output=estimated_output,
        expected_output=expected_output,
        decision_laws=decision_laws,
        noise=noise,
        recording=Recording(np.zeros(0, np.int64), np.zeros(0, np.int64)),
    )
    return result


def replay_recorded(
    cluster: Cluster,
    laws: Estimators,
    policy: Policy,
    workload: Workload,
    *,
    seed: int,
    recording: Recording,
    lengths: LengthRows | None = None,
    estimated_output: Int32 | None = None,
    expected_output: Int32 | None = None,
    decision_laws: Estimators | None = None,
    noise: Noise | None = None,
) -> tuple[Replay, Recorded]:
    """`replay`, and what such a pool would have logged."""
    believed = laws if decision_laws is None else decision_laws
    pool = pool_arrays(cluster)
    q = request_rows(workload, cluster)
    fixed = fixed_estimates(q, estimated_output, expected_output)
    if lengths is None and not fixed:
        lengths = length_rows(believed.length, [c.name for c in policy.classes], workload)
    q[recording.decision_requests, columns.Q_RECORD] = np.arange(len(recording.decision_requests))
    rs, routers = router_part(cluster, q, seed)
    prefill, decode = len(cluster.prefill), len(cluster.decode)
    ps, ds = empty.idle_nodes(prefill, decode)
    counters = empty.counter_slots()
    cells_p, cells_d = ((prefill, 8, 16, 4), (decode, 32, 32, 4)) if recording.cells else ((0, 1, 1, 4), (0, 1, 1, 4))
    true = cluster_laws(laws, cluster)
    pre = prefill_part(cluster, laws, true, workload.block_ids, noise, seed, np.zeros(cells_p))
    dec = decode_part(cluster, laws, true, noise, seed, np.zeros(cells_d), 0 if fixed else workload.requests)
    view, scratch = _decision_arrays(cluster)
    recorder = _recorder(recording, prefill, decode)
    with one_compiler(_COMPILED, "run"):
        run(
            pre,
            dec,
            link_part(cluster, laws, true, pool, noise, seed, workload.requests),
            routers,
            length_part(None if fixed else lengths, policy, cluster.routers.count),
            recorder,
            view,
            scratch,
            policy_arrays(policy),
            true if decision_laws is None else cluster_laws(decision_laws, cluster),
            pool,
            ps,
            ds,
            rs,
            q,
            counters,
        )
    recorded = Recorded(
        polls_prefill=recorder.poll_p,
        polls_decode=recorder.poll_d,
        decision_scores=recorder.decision_scores,
        decision_terms=recorder.decision_terms,
        decision_age_s=recorder.decision_age,
        prefill_cells=pre.cells,
        decode_cells=dec.cells,
    )
    return _result(q, routers.predicted, counters), recorded


def _decision_arrays(cluster: Cluster) -> tuple[ViewArrays, Scratch]:
    prefill, decode = len(cluster.prefill), len(cluster.decode)
    view = ViewArrays(
        prefill=np.full((prefill, len(PREFILL_COLUMNS)), np.nan),
        decode=np.full((decode, len(DECODE_COLUMNS)), np.nan),
        hit_tokens=np.zeros(prefill, np.int64),
        resident_tokens=np.zeros(decode, np.int64),
        uplink_flows=np.zeros(max(len(cluster.uplinks), 1)),
        prefill_open=np.ones(prefill, np.int64),
        decode_open=np.ones(decode, np.int64),
    )
    scratch = Scratch(
        scores=np.zeros((prefill, decode)),
        terms=np.zeros((prefill, decode, len(TERMS))),
        predicted_ttft_s=np.full((prefill, decode), np.nan),
        predicted_tpot_s=np.full((prefill, decode), np.nan),
    )
    return view, scratch


def _recorder(recording: Recording, prefill: int, decode: int) -> parts.Recorder:
    polls, rows = len(recording.poll_ns), len(recording.decision_requests)
    return parts.Recorder(
        poll_time=recording.poll_ns,
        poll_p=np.zeros((polls, prefill, len(columns.POLL_P)), np.int64),
        poll_d=np.zeros((polls, decode, len(columns.POLL_D)), np.int64),
        decision_scores=np.full((rows, prefill, decode), np.nan),
        decision_terms=np.full((rows, prefill, decode, len(TERMS)), np.nan),
        decision_age=np.full(rows, np.nan),
    )


def _result(q: Int64, predicted: Float64, counters: Int64) -> Replay:
    def small(column: int) -> Int32:
        return q[:, column].astype(np.int32)

    def time(column: int) -> Int64:
        return q[:, column].copy()

    return Replay(
        status=small(columns.Q_STATUS),
        prefill_node=small(columns.Q_PREFILL_NODE),
        decode_node=small(columns.Q_DECODE_NODE),
        prefill_started_ns=time(columns.Q_PREFILL_STARTED),
        prefill_finished_ns=time(columns.Q_PREFILL_FINISHED),
        transfer_started_ns=time(columns.Q_TRANSFER_STARTED),
        transfer_drained_ns=time(columns.Q_TRANSFER_DRAINED),
        transfer_finished_ns=time(columns.Q_TRANSFER_FINISHED),
        activated_ns=time(columns.Q_ACTIVATED),
        first_token_ns=time(columns.Q_FIRST_TOKEN),
        finished_ns=time(columns.Q_FINISHED),
        cached_tokens=small(columns.Q_CACHED_TOKENS),
        preemptions=small(columns.Q_PREEMPTIONS),
        estimated_output=small(columns.Q_ESTIMATED),
        expected_output=small(columns.Q_EXPECTED),
        predicted_ttft_s=predicted[:, 0],
        predicted_tpot_s=predicted[:, 1],
        counters=Counters(
            prefill_steps=int(counters[columns.PREFILL_STEPS]),
            decode_steps=int(counters[columns.DECODE_STEPS]),
            preemptions=int(counters[columns.PREEMPTIONS]),
            evictions=int(counters[columns.EVICTIONS]),
            hit_blocks=int(counters[columns.HITS]),
            blocked=int(counters[columns.BLOCKED]),
            shared=int(counters[columns.SHARED]),
            stale=int(counters[columns.STALE]),
            expired=int(counters[columns.EXPIRED]),
        ),
    )
