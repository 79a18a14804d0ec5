"""Compiled form of `policies.narrowing`: closes in a view the nodes that a decision does not look at."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.families.parts_kernel import (
    AVAILABLE,
    BACKLOG_REQUESTS,
    BACKLOG_TOKENS,
    PREFILL_AGE,
    USABLE,
    estimated_blocks,
    mix,
)
from policies.kernel_types import Float64, Int64
from policies.mixing import DECODE_DRAWN, PREFILL_DRAWN
from policies.view import PREFILL_COLUMNS

WAITING = PREFILL_COLUMNS.index("waiting_requests")
RUNNING_P = PREFILL_COLUMNS.index("running_requests")


@kernel
def keep_computed(prefill: Float64, is_open: Int64, hit_tokens: Int64, blocks: Int64, at: int) -> None:
    """Only the P that has computed the prompt stays open, and it has nothing left to do."""
    for i in range(len(is_open)):
        is_open[i] = 1 if i == at else 0
    prefill[at, BACKLOG_TOKENS] = 0.0
    prefill[at, BACKLOG_REQUESTS] = 0.0
    prefill[at, WAITING] = 0.0
    prefill[at, RUNNING_P] = 0.0
    prefill[at, AVAILABLE] = float(blocks[at])
    prefill[at, PREFILL_AGE] = 0.0
    hit_tokens[at] = 0


@kernel
def draw_prefill(is_open: Int64, blocks: Int64, need: int, draws: int, tie_seed: np.uint64) -> None:
    """Of the open P nodes that hold the prompt only so many stay open."""
    for i in range(len(is_open)):
        if need > blocks[i]:
            is_open[i] = 0
    _keep_drawn(is_open, draws, tie_seed, PREFILL_DRAWN)


@kernel
def draw_decode(
    is_open: Int64, decode: Float64, resident_tokens: Int64, tokens: int, block: int, draws: int, tie_seed: np.uint64
) -> None:
    """Of the open D nodes that can hold the request only so many stay open."""
    for j in range(len(is_open)):
        if estimated_blocks(tokens, resident_tokens[j], block) > decode[j, USABLE]:
            is_open[j] = 0
    _keep_drawn(is_open, draws, tie_seed, DECODE_DRAWN)


@kernel
def _keep_drawn(is_open: Int64, draws: int, tie_seed: np.uint64, side: int) -> None:
    """The open nodes of the lowest ranks stay open; ranks of different nodes differ."""
    limit = np.uint64(0)
    for k in range(draws):
        best = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
        for at in range(len(is_open)):
            rank = mix(tie_seed ^ np.uint64(at + side))
            if is_open[at] == 1 and rank <= best and (k == 0 or rank > limit):
                best = rank
        limit = best
    for at in range(len(is_open)):
        if is_open[at] == 1 and mix(tie_seed ^ np.uint64(at + side)) > limit:
            is_open[at] = 0
