"""The engine's memory: flat arrays, allocated once a replay, no allocation per event.

One row a P node (`ps`), a D node (`ds`), a request (`q`), a router (`rs`), a flow (`flows`); the constants below name
the columns. What else a part of the pool needs is one named tuple a part: kernels take the parts that they touch, since
every array that is handed on costs compile time and run time at every call. Lists of requests are linked: head and tail
are columns of the node, the next request is a column of the request.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from policies.kernel_types import StepArrays

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

NEVER = 2**62
"""A time that no event has."""

# Columns of ps. Cumulative: steps, busy_ns, computed (tokens). held: blocks of finished prompts that are not sent.
(
    P_END,
    P_STEP_TOKENS,
    P_STEP_NS,
    P_STEPS,
    P_QUEUE_HEAD,
    P_QUEUE_TAIL,
    P_QUEUED,
    P_N_RUNNING,
    P_PINNED,
    P_CACHED,
    P_HELD,
    P_RELEASE_HEAD,
    P_RELEASE_TAIL,
    P_BACKLOG_TOKENS,
    P_BACKLOG_REQUESTS,
    P_BUSY_NS,
    P_COMPUTED,
    P_SENDING,
) = range(18)

# Columns of ds. Cumulative: steps, generated (tokens), freed (blocks). step_sequences 0 = no step runs.
(
    D_END,
    D_STEPS,
    D_STEP_SEQUENCES,
    D_STEP_NS,
    D_N_RUNNING,
    D_TOKENS,
    D_RUNNING_BLOCKS,
    D_INFLIGHT_BLOCKS,
    D_RECEIVING,
    D_RECEIVING_TOKENS,
    D_N_FRESH,
    D_QUEUE_HEAD,
    D_QUEUE_TAIL,
    D_QUEUED,
    D_QUEUED_BLOCKS,
    D_LAND_HEAD,
    D_LAND_TAIL,
    D_PREEMPTED_HEAD,
    D_N_PREEMPTED,
    D_GENERATED,
    D_FREED,
    D_DRAINING,
) = range(22)

# Columns of q: the workload, the request's place in the pool, its log. kind: 0 decide, 1 forced, 2 too large.
# full: leading prompt blocks that hold a reference on P; made0, step0: tokens made and D's step number at the last
# join.
(
    Q_ARRIVAL,
    Q_PROMPT,
    Q_OUTPUT,
    Q_SLO_CLASS,
    Q_OFFSET,
    Q_OFFSET_END,
    Q_KIND,
    Q_FORCED_P,
    Q_FORCED_D,
    Q_ESTIMATED,
    Q_EXPECTED,
    Q_SAMPLE,
    Q_RECORD,
    Q_BOOKING_OVER,
    Q_EXPECTED_NEW,
    Q_REST,
    Q_TAKEN,
    Q_FULL,
    Q_PQ_NEXT,
    Q_RELEASE_NEXT,
    Q_DQ_NEXT,
    Q_LAND_NEXT,
    Q_PREEMPTED_NEXT,
    Q_MADE0,
    Q_STEP0,
    Q_JOIN,
    Q_RUNS,
    Q_STATUS,
    Q_PREFILL_NODE,
    Q_DECODE_NODE,
    Q_PREFILL_STARTED,
    Q_PREFILL_FINISHED,
    Q_TRANSFER_STARTED,
    Q_TRANSFER_DRAINED,
    Q_TRANSFER_FINISHED,
    Q_ACTIVATED,
    Q_FIRST_TOKEN,
    Q_FINISHED,
    Q_CACHED_TOKENS,
    Q_PREEMPTIONS,
) = range(40)
REQUEST_COLUMNS = 40

# Columns of rs and flows. A router's ticks are sample_time[first:end]; phase: 0 draining, 1 drained, not yet visible.
# observed: answers of the pool, in the order of their ends, that the router has gone through.
R_SAMPLE_FIRST, R_SAMPLE_END, R_SAMPLE_DONE, R_LAST_TIME, R_N_BOOKED, R_TURN, R_OBSERVED = range(7)
X_REQUEST, X_SINCE, X_END, X_PHASE = range(4)

# Slots of counters; the last four are the join number, the numbers of flows and of ended answers, and the next transfer
# event.
(
    PREFILL_STEPS,
    DECODE_STEPS,
    PREEMPTIONS,
    EVICTIONS,
    HITS,
    BLOCKED,
    SHARED,
    STALE,
    EXPIRED,
    JOINS,
    FLOWS,
    ENDED,
    NEXT_FLOW,
) = range(13)

# Recorder columns of one P and one D node at one poll; cumulative ones since the replay's start.
POLL_P = ("pinned", "cached", "held", "waiting", "running", "backlog_tokens", "sending", "busy_ns", "computed_tokens")
POLL_D = (
    "running_blocks",
    "inflight_blocks",
    "queued_blocks",
    "queued",
    "running",
    "running_tokens",
    "receiving",
    "receiving_tokens",
    "steps",
    "sum_sequences",
    "sum_ns",
    "sum_sequences2",
    "sum_sequences_ns",
    "generated",
    "preemptions",
    "preempted",
)


class Prefill(NamedTuple):
    """What P nodes share: caches, running prompts, the prefill law, the discipline. B = distinct prompt blocks."""

    ids: Int32  # prompt blocks of all requests, dense
    cache: Int32  # (P, B + 1, 4): next, previous, references, resident; the last row is the LRU list's sentinel
    running: Int32  # (P, max_seqs)
    blocks: Int64  # (P,) capacity
    cache_blocks: Int64  # (P,) blocks, pinned ones among them, up to which unpinned blocks stay
    law: StepArrays
    noise: Float64  # (4096,) or empty
    cells: Float64  # (P, prompt bins, token bins, 4): steps, Σ new tokens, Σ chunk·context, Σ noise-free seconds
    max_seqs: int
    chunk_tokens: int
    block_tokens: int
    seed: np.uint64


class Decode(NamedTuple):
    """What D nodes share: running sequences, the decode law, the discipline."""

    heap: Int64  # (D, max_seqs, 2): target step, request
    growth: Int32  # (D, block_tokens): sequences that need a block in steps of this residue
    fresh: Int32  # (D, max_seqs): requests whose first token the running step makes
    moments: Int64  # (D, 5): sums over finished steps of sequences, ns, sequences², sequences·ns; preemptions
    blocks: Int64  # (D,) capacity
    ended: Int32  # (n,) or empty: requests whose answer has ended, by (time, request)
    law: StepArrays
    recompute: StepArrays  # the prefill laws of the D nodes' types
    noise: Float64
    cells: Float64  # (D, sequence bins, token bins, 4): steps, Σ sequences, Σ tokens, Σ noise-free seconds
    max_seqs: int
    reservations: int
    block_tokens: int
    release_on_activation: int
    seed: np.uint64


class Links(NamedTuple):
    """Transfers: active flows, ports and uplinks in bytes per ns."""

    flows: Int64  # (n, 4)
    flow_rates: Float64  # (n, 2): bytes left, bytes per ns
    on_uplink: Int64  # (U,) draining flows
    own_flows: Int64  # (R, U) draining flows of each router
    egress: Float64
    ingress: Float64
    uplink: Float64
    efficiency: Float64  # (2,)
    path_uplink: Int64
    path_kind: Int64
    alpha_s: Float64  # (2,)
    noise: Float64
    descriptor_s: float
    descriptors_per_block: float
    wire_frac: float
    block_tokens: int
    kv_bytes_per_token: int
    routers: int
    release_on_activation: int
    seed: np.uint64


class Routers(NamedTuple):
    """Routers: ticks, rings of samples, bookings."""

    sample_time: Int64
    ring_p: Float64  # (R, slots, P, 4)
    ring_d: Float64  # (R, slots, D, 12)
    totals: Int64  # (R, D, 2): generated and freed at the last sample
    kv_rates: Float64  # (R, D, 2): growth and release
    booked: Int32  # (R, ceil(n / R) + 1)
    predicted: Float64  # (n, 2): TTFT, TPOT
    replicas: int
    period: int
    lease: int
    seed: np.uint64


class Lengths(NamedTuple):
    """What routers expect of answers: the length law by request, and offsets by router (L levels, G groups).

    `base` without rows: the estimates of `q` stand as they are.
    """

    base: Float64  # (n, L) tokens before any offset
    group: Int64  # (n,)
    cap: Float64  # (n,) the most tokens
    learned: Int64  # (n,) 0 = the answer's end teaches nothing
    offset: Float64  # (R, G, L) today's
    pace: Float64  # (G, L)
    level: Float64  # (L,)
    booked: Int64  # (C,) place of each class's level
    median: int  # its place


class Recorder(NamedTuple):
    """What a replay writes down beside the requests; arrays of length 0 switch a part off."""

    poll_time: Int64
    poll_p: Int64  # (polls, P, len(POLL_P))
    poll_d: Int64  # (polls, D, len(POLL_D))
    decision_scores: Float64  # (rows, P, D)
    decision_terms: Float64  # (rows, P, D, 7)
    decision_age: Float64  # (rows,)


def idle_nodes(prefill: int, decode: int) -> tuple[Int64, Int64]:
    """Rows `ps` and `ds` of an empty pool."""
    ps = np.zeros((prefill, 18), np.int64)
    ps[:, P_END] = NEVER
    ps[:, [P_QUEUE_HEAD, P_QUEUE_TAIL, P_RELEASE_HEAD, P_RELEASE_TAIL]] = -1
    ds = np.zeros((decode, 22), np.int64)
    ds[:, D_END] = NEVER
    ds[:, [D_QUEUE_HEAD, D_QUEUE_TAIL, D_LAND_HEAD, D_LAND_TAIL, D_PREEMPTED_HEAD]] = -1
    return ps, ds


def counter_slots() -> Int64:
    """Counters of a replay that has not begun."""
    counters = np.zeros(13, np.int64)
    counters[NEXT_FLOW] = NEVER
    return counters


def empty_cache(nodes: int, ids: Int32) -> Int32:
    """`Prefill.cache` of empty caches for these prompt blocks."""
    blocks = int(ids.max()) + 1 if len(ids) else 0
    cache = np.zeros((nodes, blocks + 1, 4), np.int32)
    cache[:, blocks, :2] = blocks
    return cache
