"""The twin's front door: replay a workload on a cluster under a policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.portable.estimators import Estimators
from policies.compiled import one_compiler
from policies.families.arrays import policy_arrays
from policies.families.kernels import keys_of
from policies.kernel_types import TERMS, Scratch, ViewArrays
from policies.lengths import LengthRows, length_rows
from policies.policy import Policy
from policies.twin.cluster import Cluster
from policies.twin.engine import columns, empty, parts
from policies.twin.engine.arena import Arena
from policies.twin.engine.loop import run
from policies.twin.engine.lower import check_workload, cluster_laws, course_part, pool_arrays
from policies.twin.engine.lower_faults import fault_rows
from policies.twin.engine.lower_lengths import fixed_estimates, length_part
from policies.twin.engine.lower_parts import decode_part, link_part, prefill_part
from policies.twin.engine.lower_routers import router_part
from policies.twin.engine.rows import RequestRows
from policies.twin.outcomes import Noise, Replay
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
    `decision_true_*` (rows, P, D): what the pool's true laws and state predicted of every pair then; NaN = none.
    `prefill_cells`, `decode_cells`: (nodes, bins, bins, 4) sums of `parts.Recorder`.
    """

    polls_prefill: Int64
    polls_decode: Int64
    decision_scores: Float64
    decision_terms: Float64
    decision_age_s: Float64
    decision_true_ttft_s: Float64
    decision_true_tpot_s: Float64
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
    arena: Arena | None = None,
) -> Replay:
    """Replay; `laws` drive the pool, `decision_laws` (default: the same) are what its routers believe.

    Routers book by the length law that they believe; `lengths` are its rows if they are there already. A pool that
    books otherwise is given `estimated_output` (the class's booking quantile) and `expected_output` (the median), fixed
    tokens of shape (requests,). `arena`: memory that a worker keeps for its next replay; the result is no part of it.
    Raises TwinError if workload and cluster do not fit each other.
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
        arena=arena,
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
    arena: Arena | None = None,
) -> tuple[Replay, Recorded]:
    """`replay`, and what such a pool would have logged."""
    believed = laws if decision_laws is None else decision_laws
    check_workload(workload)
    pool = pool_arrays(cluster)
    memory = Arena() if arena is None else arena
    fixed = fixed_estimates(workload.requests, estimated_output, expected_output)
    if lengths is None and fixed is None:
        lengths = length_rows(believed.length, [c.name for c in policy.classes], workload)
    rows = RequestRows(memory, workload, cluster, fixed, recording.decision_requests)
    prefill, decode = len(cluster.prefill), len(cluster.decode)
    ps, ds = empty.idle_nodes(prefill, decode)
    counters = empty.counter_slots()
    cells_p, cells_d = ((prefill, 8, 16, 4), (decode, 32, 32, 4)) if recording.cells else ((0, 1, 1, 4), (0, 1, 1, 4))
    true = cluster_laws(laws, cluster)
    seen = true if decision_laws is None else cluster_laws(decision_laws, cluster)
    pre = prefill_part(memory, cluster, laws, true, workload, noise, seed, np.zeros(cells_p))
    ends = workload.requests if fixed is None else 0
    running = np.zeros((decode, len(policy.classes)), np.int64)
    dec = decode_part(memory, cluster, laws, true, workload, noise, seed, np.zeros(cells_d), ends, running)
    x = link_part(memory, cluster, laws, true, pool, noise, seed, workload.requests)
    length = length_part(lengths if fixed is None else None, policy, cluster.routers.count)
    rs, routers = router_part(memory, cluster, workload, policy, believed, running, seed)
    course = course_part(workload)
    broken = fault_rows(cluster, x)
    counters[columns.TO_COME] = len(course.followers)
    view, scratch = _decision_arrays(cluster, len(policy.classes))
    recorder = _recorder(recording, prefill, decode)
    decides = policy_arrays(policy)
    with one_compiler(_COMPILED, "run"):
        keys = keys_of(policy.family)
        while True:
            counters[columns.READY] = rows.fill()
            broken.first[0] = rows.kept
            run(
                keys, pre, dec, x, routers, length, course, broken, recorder, view, scratch, decides, seen, true, pool,
                ps, ds, rs, rows.q, counters,
            )  # fmt: skip
            if rows.settle():
                break
    recorded = Recorded(
        polls_prefill=recorder.poll_p,
        polls_decode=recorder.poll_d,
        decision_scores=recorder.decision_scores,
        decision_terms=recorder.decision_terms,
        decision_age_s=recorder.decision_age,
        decision_true_ttft_s=recorder.decision_true[..., 0],
        decision_true_tpot_s=recorder.decision_true[..., 1],
        prefill_cells=pre.cells,
        decode_cells=dec.cells,
    )
    return rows.replay(routers.predicted, counters, dec.itl), recorded


def _decision_arrays(cluster: Cluster, classes: int) -> tuple[ViewArrays, Scratch]:
    prefill, decode = len(cluster.prefill), len(cluster.decode)
    view = ViewArrays(
        prefill=np.full((prefill, len(PREFILL_COLUMNS)), np.nan),
        decode=np.full((decode, len(DECODE_COLUMNS)), np.nan),
        hit_tokens=np.zeros(prefill, np.int64),
        resident_tokens=np.zeros(decode, np.int64),
        uplink_flows=np.zeros(max(len(cluster.uplinks), 1)),
        prefill_open=np.ones(prefill, np.int64),
        decode_open=np.ones(decode, np.int64),
        running_by_class=np.full((decode, classes), np.nan),
        placed=np.full(3, -1, np.int64),
    )
    scratch = Scratch(
        scores=np.zeros((prefill, decode)),
        terms=np.zeros((prefill, decode, len(TERMS))),
        predicted_ttft_s=np.full((prefill, decode), np.nan),
        predicted_tpot_s=np.full((prefill, decode), np.nan),
        own=np.zeros((decode, 2)),
        keys_p=np.zeros(prefill),
        keys_d=np.zeros(decode),
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
        decision_true=np.full((rows, prefill, decode, 2), np.nan),
    )
