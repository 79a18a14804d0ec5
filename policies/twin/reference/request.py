"""What the plain reference knows of one request, and the numbers rules that all its parts share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from models.portable.length import Arrival
from policies.mixing import MASK, mix
from policies.twin.outcomes import NOT_YET, Status

PREFILL_NOISE, DECODE_NOISE, TRANSFER_NOISE, TIE_SEED, SAMPLE_LOSS = 1, 2, 3, 4, 5
CACHE_CHANGE = 11
"""Components of `draw`."""


def draw(seed: int, component: int, a: int, b: int) -> int:
    """64 random bits that depend on nothing but these four numbers."""
    return mix(mix(mix(mix(seed & MASK) ^ component) ^ a) ^ b)


def multiplier(table: npt.NDArray[np.float64] | None, seed: int, component: int, a: int, b: int) -> float:
    """The noise of one duration; 1 without noise."""
    return 1.0 if table is None else float(table[draw(seed, component, a, b) >> 52])


def rounded_ns(seconds: float) -> int:
    """Seconds as ns, may be 0."""
    return math.floor(seconds * 1e9 + 0.5)


def duration_ns(seconds: float) -> int:
    """A step's seconds as ns, at least 1."""
    return max(1, rounded_ns(seconds))


def blocks_for(tokens: int, block_tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // block_tokens)


@dataclass(slots=True, eq=False)
class Request:
    """One request on its way. Times are ns, `NOT_YET` = not reached; nodes are indices, -1 = none."""

    index: int
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int  # 0 in the workload counts as 1
    hashes: list[int]
    class_index: int
    arrival: Arrival | None  # None = the estimates are fixed
    learned: bool
    forced: tuple[int, int] | None
    estimated_output: int
    expected_output: int
    patience_ns: int | None = None  # from the arrival to the cancellation; None = never
    parent: int = -1  # the request that this one follows
    think_ns: int = 0
    priority: int = 0
    status: Status | None = None
    prefill_node: int = -1
    decode_node: int = -1
    expected_new_tokens: int = 0  # u
    prefill_started_ns: int = NOT_YET
    prefill_finished_ns: int = NOT_YET
    transfer_started_ns: int = NOT_YET
    transfer_drained_ns: int = NOT_YET
    transfer_finished_ns: int = NOT_YET
    activated_ns: int = NOT_YET
    released_ns: int = NOT_YET
    first_token_ns: int = NOT_YET
    finished_ns: int = NOT_YET
    cached_tokens: int = 0
    sent_tokens: int = 0
    preemptions: int = 0
    predicted_ttft_s: float = math.nan
    predicted_tpot_s: float = math.nan
    # On P
    tokens_done: int = 0
    references: list[int] = field(default_factory=list)  # registered blocks, in prompt order
    anonymous_blocks: int = 0
    released: bool = False  # D needs nothing of it here any longer
    # On D
    tokens_made: int = 0
    last_token_ns: int = NOT_YET
    blocks_on_d: int = 0  # its own ones
    shared_on_d: list[int] = field(default_factory=list)  # prompt blocks that others may use too, in prompt order
    copies: set[int] = field(default_factory=set)  # places of prompt blocks that others had already
    reserved_blocks: int = 0  # that were taken for it when it was reserved
    reservation: int = 0  # its number among the reservations of its D
    stage_end: int = 0  # answer tokens that D has admitted, where it admits them in stages
    rest_tokens: int = 0  # of its context that D must compute again before it makes tokens
    chunk_tokens: int = 0  # of those, the step under way computes so many
    stalled: bool = False  # it makes no token in the step under way

    @property
    def arrived_ns(self) -> int:
        """When it arrived."""
        return self.arrival_ns

    @property
    def context_tokens(self) -> int:
        """Tokens whose KV D holds while the request runs there."""
        return self.prompt_tokens + self.tokens_made
