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
