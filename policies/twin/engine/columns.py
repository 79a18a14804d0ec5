"""Columns of the engine's rows: P nodes (`ps`), D nodes (`ds`), requests (`q`), routers (`rs`), flows (`flows`)."""

from __future__ import annotations

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
