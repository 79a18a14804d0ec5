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

Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Uint64 = npt.NDArray[np.uint64]
Float64 = npt.NDArray[np.float64]


class Cache(NamedTuple):
    """Prefix caches of the P nodes, and what routers see of them. Columns: `columns.S_*` and `columns.L_*`.

    `seen` and `log` without rows: routers see the caches as they are. The log is a ring of changes of neighbouring
    blocks: time, first block, blocks, P, 1 = became resident; `log_at` as in signals.py.
    """

    offset: Int64  # (n + 1,) request -> places in refs
    refs: Int32  # segments of all prompts
    start: Int64  # (S + 1,) first block of each segment
    segments: Int32  # (S, P, 4)
    runs: Int64  # (P, most runs + 1, 7); row 0: ends of the LRU list, older = first free row, high = rows ever used
    hits: Int64  # (P,) what the last arrival's router saw
    seen: Uint64  # (blocks, words of 64 P)
    log: Int64  # (ring, 5)
    log_at: Int64  # (3 + P,)
    period: int
    delay: int
    loss_frac: float
    seed: np.uint64


class Prefill(NamedTuple):
    """What P nodes share: caches, running prompts, the prefill law, the discipline."""

    ids: Int32  # prompt blocks of all requests, dense
    cache: Cache
    queues: Int64  # (P · priorities, 2) first and last waiting request of each priority, -1 = none
    running: Int32  # (P, max_seqs)
    handed: Int32  # (max_seqs,) prompts that the last boundary finished, in running order
    blocks: Int64  # (P,) capacity
    cache_blocks: Int64  # (P,) blocks, pinned ones among them, up to which unpinned blocks stay
    ttl: Int64  # (P,) ns that unpinned blocks stay, NEVER = as long as there is room
    law: StepArrays
    noise: Float64  # (4096,) or empty
    cells: Float64  # (P, prompt bins, token bins, 4): steps, Σ new tokens, Σ chunk·context, Σ noise-free seconds
    max_seqs: int
    chunk_tokens: int
    block_tokens: int
    seed: np.uint64
    mean_tokens: int  # 1 = T from the mean positions of the chunks
    priorities: int


class Decode(NamedTuple):
    """What D nodes share: running sequences, the decode law, the discipline."""

    heap: Int64  # (D, max_seqs, 2): target step, request
    growth: Int32  # (D, block_tokens): sequences that need a block in steps of this residue
    fresh: Int32  # (D, 2 · max_seqs): requests that came to run with the running step
    moments: Int64  # (D, 5): sums over finished steps of sequences, ns, sequences², sequences·ns; preemptions
    blocks: Int64  # (D,) capacity
    running_by_class: Int64  # (D, C) sequences that make a token in the step under way
    ended: Int32  # (n,) or empty: requests whose answer has ended, by (time, request)
    gone: Int32  # (n,): requests that have ended in any way since the last decision
    law: StepArrays
    recompute: StepArrays  # the prefill laws of the D nodes' types
    noise: Float64
    cells: Float64  # (D, sequence bins, token bins, 4): steps, Σ sequences, Σ tokens, Σ noise-free seconds
    max_seqs: int
    reservations: int
    block_tokens: int
    release_on_activation: int
    seed: np.uint64
    ids: Int32  # prompt blocks of all requests, dense
    own_first: Int64  # (n,) or empty: number of a request's first block that is not one of `ids`
    cache: Int32  # (D, blocks + 1, 3), see decode_blocks
    copies: Int8  # as `ids` or empty: 1 = a block that the request has for itself, since others had it already
    share: int
    retain: int
    lag: int
    reserve_first: int
    in_steps: int  # 1 = preempted sequences compute their context again in steps
    chunk_tokens: int
    itl: Int64  # (C, BINS) of policies.twin.itl
    swap_s: float  # seconds a token to or from host memory, 0 = preempted sequences are computed again
    readmit_first_preempted: int
    admission_reserve: int  # blocks
    books: int  # 1 = what routers booked must fit, 2 = what the stages of the answers book
    stage_tokens: int
    first_on_p: int  # 1 = P makes the first token


class Links(NamedTuple):
    """Transfers: active flows, ports and uplinks in bytes per ns."""

    flows: Int64  # (F, FLOW_COLUMNS), F = the most at a time
    flow_rates: Float64  # (F, 2): bytes left, bytes per ns
    flow_heap: Int64  # (F,) rows of flows, by (time of the next event, request)
    first_flow: Int64  # (3, nodes or uplinks): row that heads the list of an egress, ingress, uplink; -1 = none
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
    overlap_frac: float
    last_frac: float
    handshake_ns: float
    met: Int64  # (P, D) 1 = the pair's handshake has begun
    alone: int  # 1 = transfers do not share
    spare: int  # 1 = what D holds is not sent
    block_tokens: int
    kv_bytes_per_token: int
    routers: int
    release_on_activation: int
    seed: np.uint64


class Routers(NamedTuple):
    """Routers: ticks, rings of samples, bookings. Times are ns. Samples have a router more, that records."""

    sample_time: Int64
    ring_time: Int64  # (R + 1, slots)
    ring_p: Float64  # (R + 1, slots, P, 6)
    ring_d: Float64  # (R + 1, slots, D, 13 + C)
    totals: Int64  # (R + 1, D, 2): generated and freed at the last sample
    kv_rates: Float64  # (R + 1, D, 2): growth and release
    running: Int64  # (D, C) sequences that run, as the D nodes keep them
    booked: Int32  # (R, ceil(n / R) + 1)
    last_pair: Int64  # (R, C, 3): P, D, since when; -1 = none
    open_p: Int64  # (C, P) 1 = serves the class
    open_d: Int64  # (C, D)
    closed: Int64  # (windows, 4): node (Ds behind Ps), start, stop, kind (0 drain, 1 outage)
    refusing: Int64  # (P + D) 1 = has refused the request that is being decided
    closed_at_once: int  # 1 = routers know of closed nodes without a sample
    gaps: Int64  # (windows, 2): samples that are taken then are lost
    pace: Float64  # (P,) tokens a second in full steps, as routers believe
    drained: Int64  # (P,) time up to which a view's backlog is drained
    predicted: Float64  # (n, 2): TTFT, TPOT
    own_p: Int64  # (R, P, 3): own prompts not computed in new tokens and in number, own requests not ended
    own_d: Int64  # (R, D, 2): own requests not ended, their full prompt blocks
    active: Int32  # (R, D, B) how many of them have the block; B = 0: no block is shared
    replicas: int
    period: int
    delay: int
    lease: int
    dwell: int
    every_tick: int  # 1 = ticks are not known ahead: each one is taken
    correct_age: int
    loss_frac: float
    half_life_s: float  # 0 = the last rates alone
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


class Course(NamedTuple):
    """What happens to requests from outside."""

    patience: Int64  # (n,) or empty: ns from the arrival to the cancellation, -1 = never
    cancels: Int64  # (m, 2) heap of (time, request) of those that have arrived
    child: Int32  # (n,) or empty: the first turn that follows, -1 = none
    sibling: Int32  # (n,) or empty: the next turn that follows the same one
    think: Int64  # (n,) or empty: ns after the end of the turn before, -1 = follows none
    followers: Int64  # (k, 2) heap of (arrival, request)
    least_think: int


class FaultRows(NamedTuple):
    """Faults that happen at one instant, in their order."""

    events: Int64  # (m, 3): time, kind (engine/faults.py), node or uplink
    speed: Float64  # (m,) bytes per ns that a link has from then on
    first: Int64  # (1,) rows before it are over


class Recorder(NamedTuple):
    """What a replay writes down beside the requests; arrays of length 0 switch a part off."""

    poll_time: Int64
    poll_p: Int64  # (polls, P, len(POLL_P))
    poll_d: Int64  # (polls, D, len(POLL_D))
    decision_scores: Float64  # (rows, P, D)
    decision_terms: Float64  # (rows, P, D, 9)
    decision_age: Float64  # (rows,)
    decision_true: Float64  # (rows, P, D, 2): TTFT and TPOT by the true laws and state
