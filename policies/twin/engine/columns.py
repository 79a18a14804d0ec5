"""Columns of the engine's rows: P nodes (`ps`), D nodes (`ds`), requests (`q`), routers (`rs`), flows (`flows`)."""

from __future__ import annotations

NEVER = 2**62
"""A time that no event has."""

# Columns of ps. Cumulative: steps, busy_ns, computed (tokens). held: blocks of finished prompts that are not sent.
# cut, cut_held: the segment in which the prompt ends that a step cut (-1 none), and its blocks of that segment.
(
    P_END,
    P_STEP_TOKENS,
    P_STEP_NS,
    P_STEPS,
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
    P_CUT,
    P_CUT_HELD,
) = range(18)
PREFILL_COLUMNS = 18

# Columns of ds. Cumulative: steps, generated (tokens), freed (blocks), reservations. step_sequences 0 = no step runs.
# preempted: waiting sequences, where D reserves first also activated ones. partial: the sequence that computes its
# context again, stalled: those that wait for it. retained: blocks. booked: blocks of all that are reserved or
# run, if answers are as long as was booked. skip: sequences that joined now and do not grow yet.
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
    D_PARTIAL,
    D_STALLED_HEAD,
    D_N_STALLED,
    D_RETAINED,
    D_RESERVATIONS,
    D_SKIP,
    D_LAST_END,
    D_SWAPPED,
    D_BOOKED,
) = range(31)
DECODE_COLUMNS = 31

# Columns of q: the workload, the request's place in the pool, its log. kind: 0 decide, 1 forced, 2 too large, 3
# cancelled before it arrives. full: leading prompt blocks that hold a reference on P, the last segment_held of them in
# the segment at place `segment`; made0, step0: tokens made and D's step number at the last join. booked: when D was
# booked, -1 = not yet; listed: 1 = in its router's list of bookings. waits: 1 activated, 2 preempted; rest_on_d: tokens
# of the context that D computes again; reserved_blocks: taken at the reservation, whose number among D's is
# `reservation`; last_token: when it was made, of a sequence that does not run; entered: D's step number when it came to
# run; sent: tokens of the transfer.
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
    Q_BOOKED,
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
    Q_SEGMENT,
    Q_SEGMENT_HELD,
    Q_PRIORITY,
    Q_RELEASED,
    Q_WAITS,
    Q_REST_ON_D,
    Q_RESERVED_BLOCKS,
    Q_RESERVATION,
    Q_SHARED,
    Q_LISTED,
    Q_LAST_TOKEN,
    Q_ENTERED,
    Q_SENT,
) = range(53)
REQUEST_COLUMNS = 53

# Columns of a P's record of a segment: resident blocks, prompts that hold all of it, blocks held by somebody, its
# newest run. Columns of a run, unpinned blocks of a segment that came to the LRU list together: neighbours in the list,
# segment, blocks [low, high), the segment's next older run, when they came.
S_RESIDENT, S_HOLDERS, S_PINNED, S_RUN = range(4)
L_NEXT, L_BEFORE, L_SEGMENT, L_LOW, L_HIGH, L_OLDER, L_SINCE = range(7)

# Columns of rs and flows. sample_done, sample_end: the router's ticks in sample_time that are still to come, where they
# are known ahead; taken: its samples; turn_d: Ds that it chose for computed prompts; observed: answers of the pool, in
# the order of their ends, that it has gone through. A flow's place is that in the heap; next and previous come once
# each for the lists of its egress, ingress and uplink.
(
    R_SAMPLE_END,
    R_SAMPLE_DONE,
    R_LAST_TIME,
    R_N_BOOKED,
    R_TURN,
    R_OBSERVED,
    R_NEXT_SAMPLE,
    R_TAKEN,
    R_TURN_D,
) = range(9)
ROUTER_COLUMNS = 9
X_REQUEST, X_SINCE, X_END, X_PHASE, X_PLACE, X_NEXT, X_PREVIOUS = range(7)
FLOW_COLUMNS = 11

# Slots of counters; JOINS is the join number, FLOWS and ENDED the numbers of flows and of ended answers, NEXT_FLOW the
# next transfer event, HANDED the prompts that the last P boundary finished, GONE the requests that ended since the last
# decision; READY rows are filled, ARRIVED of them have arrived, POLLED polls were taken, FREE_FLOW is the first free
# row of flows, CANCELS the number of cancellations that may come, SWAPPED counts tokens. FOLLOWERS is
# the number of turns that wait for their arrival, TO_COME of those that wait for the end of the one before; the first
# FOLLOWED of the gone have been followed.
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
    HANDED,
    GONE,
    READY,
    ARRIVED,
    POLLED,
    FREE_FLOW,
    CANCELS,
    FOLLOWERS,
    TO_COME,
    FOLLOWED,
    TIMED_OUT,
    FAULTED,
    SWAPPED,
) = range(26)
COUNTERS = 26

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
