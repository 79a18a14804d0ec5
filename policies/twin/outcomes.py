"""What a replay yields: one row a request, and what happened on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from policies.twin.itl import BINS

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

NOT_YET = -1
"""A time that was never reached."""


class Status(IntEnum):
    """How a request ended."""

    COMPLETED = 0
    REJECTED = 1
    TOO_LARGE = 2
    FAILED = 3
    CANCELLED = 4


class Counters(NamedTuple):
    """Events of one replay, see docs/twin.md."""

    prefill_steps: int
    decode_steps: int
    preemptions: int
    evictions: int
    hit_blocks: int
    blocked: int
    shared: int
    stale: int
    expired: int
    timed_out: int
    swapped_tokens: int = 0  # whose KV went to host memory or came back


@dataclass(frozen=True, slots=True)
class Noise:
    """Multipliers of durations (transfer: of bytes), 4,096 values each; docs/twin.md says which value a step takes."""

    prefill: Float64
    decode: Float64
    transfer: Float64


@dataclass(frozen=True, slots=True)
class Replay:
    """Arrays of shape (requests,), in workload order; times in ns of its clock, `NOT_YET` = never reached."""

    status: Int32
    prefill_node: Int32  # index, -1 = none
    decode_node: Int32
    prefill_started_ns: Int64
    prefill_finished_ns: Int64
    transfer_started_ns: Int64  # = D's reservation
    transfer_drained_ns: Int64
    transfer_finished_ns: Int64  # KV visible
    activated_ns: Int64
    released_ns: Int64  # P freed its KV: at a boundary, or when a request that it had started was over
    first_token_ns: Int64
    finished_ns: Int64
    cached_tokens: Int32
    sent_tokens: Int32  # whose KV D was sent, or began to be
    preemptions: Int32
    estimated_output: Int32  # tokens that its router booked and expected, -1 = none of it was asked
    expected_output: Int32
    predicted_ttft_s: Float64  # of the chosen pair at the decision; NaN where the family predicts nothing
    predicted_tpot_s: Float64
    arrived_ns: Int64  # the workload's, but for turns that follow others
    counters: Counters
    itl_counts: Int64 = field(default_factory=lambda: np.zeros((1, BINS), np.int64))
    """(classes, BINS): gaps between the tokens of answers, see policies.twin.itl."""
