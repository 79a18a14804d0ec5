"""Compiled families that choose P and D apart. Twin of `policies.families.apart` and the keys beside it."""

from __future__ import annotations

import math

import numpy as np

from policies.compiled import kernel
from policies.families.parts_kernel import (
    ACTIVE,
    BACKLOG_REQUESTS,
    BACKLOG_TOKENS,
    BOOKED,
    GROWTH,
    RECEIVING,
    RELEASE,
    RUNNING,
    USABLE,
    capacity_rate,
    committed_blocks,
    estimated_blocks,
    lacks_room,
    node_tie,
    room_blocks,
)
from policies.families.registry import CAPACITY, FAMILIES
from policies.kernel_types import Float64, Int64, PolicyArrays, PoolArrays, Scratch, ViewArrays

LMETRIC = FAMILIES.index("lmetric")
ROUND_ROBIN = FAMILIES.index("round_robin")
NEEDS_ROOM = tuple(family in CAPACITY for family in FAMILIES)
PREFILL_FIRST = 1
DECODE_FIRST = 2
ANY_RACK = -1
PREFILL = 0
DECODE = 1


@kernel
def choose_apart(
    policy: PolicyArrays,
    pool: PoolArrays,
    view: ViewArrays,
    prompt: int,
    estimated_output: int,
    class_index: int,
    tie_seed: np.uint64,
    turn: int,
    scratch: Scratch,
) -> int:
    """p · D + d of the smallest keys, or -1. Scores: NaN for a candidate; no terms, no predictions."""
    # Keys wait in the first column (P) and the first row (D) of two arrays that end as NaN; inf = no candidate.
    keys_p, keys_d, scores = scratch.predicted_ttft_s, scratch.predicted_tpot_s, scratch.scores
    n_prefill, n_decode = scores.shape
    exclude, block = policy.unknown == 1, pool.block_tokens
    any_prefill = False
    for i in range(n_prefill):
        key = view.prefill[i, BACKLOG_TOKENS]
        if policy.family == LMETRIC:
            key = (key + float(prompt) - float(view.hit_tokens[i])) * (view.prefill[i, BACKLOG_REQUESTS] + 1.0)
        elif policy.family == ROUND_ROBIN:
            key = float((i - turn % n_prefill) % n_prefill)
        closed = view.prefill_open[i] == 0 or -(-prompt // block) > pool.prefill_blocks[i]
        keys_p[i, 0] = math.inf if closed or (exclude and math.isnan(key)) else key
        any_prefill = any_prefill or keys_p[i, 0] != math.inf
    capacity, any_decode = NEEDS_ROOM[policy.family], False
    for attempt in range(2):
        if attempt == 1 and (not capacity or policy.when_full == 1 or (any_prefill and any_decode)):
            break
        for j in range(n_decode):
            key = view.decode[j, ACTIVE] / view.decode[j, USABLE]
            if policy.family == LMETRIC:
                sequences = view.decode[j, RUNNING] + view.decode[j, RECEIVING] + view.decode[j, BOOKED]
                key = (sequences + 1.0) * (committed_blocks(view.decode, j) * float(block))
            elif policy.family == ROUND_ROBIN:
                key = float((j - (turn + turn // n_prefill) % n_decode) % n_decode)
            estimated = estimated_blocks(prompt + estimated_output, view.resident_tokens[j], block)
            closed = view.decode_open[j] == 0 or estimated > view.decode[j, USABLE]
            if capacity and attempt == 0 and not closed:
                rate = capacity_rate(view.decode[j, GROWTH], view.decode[j, RELEASE])
                room, reserve = room_blocks(view.decode, j), policy.reserve_blocks[class_index]
                closed = lacks_room(room, estimated, rate, policy.horizon_s, policy.horizon_s, reserve, exclude)
            keys_d[0, j] = math.inf if closed or (exclude and math.isnan(key)) else key
            any_decode = any_decode or keys_d[0, j] != math.inf
    i, j = -1, -1
    if any_prefill and any_decode:
        if policy.same_rack == DECODE_FIRST:
            j = _pick(keys_d, DECODE, pool.decode_rack, ANY_RACK, tie_seed)
            i = _pick(keys_p, PREFILL, pool.prefill_rack, pool.decode_rack[j], tie_seed)
        else:
            i = _pick(keys_p, PREFILL, pool.prefill_rack, ANY_RACK, tie_seed)
            if policy.same_rack == PREFILL_FIRST:
                j = _pick(keys_d, DECODE, pool.decode_rack, pool.prefill_rack[i], tie_seed)
        if i < 0:
            i = _pick(keys_p, PREFILL, pool.prefill_rack, ANY_RACK, tie_seed)
        if j < 0:
            j = _pick(keys_d, DECODE, pool.decode_rack, ANY_RACK, tie_seed)
    for p in range(n_prefill):
        for d in range(n_decode):
            scores[p, d] = math.inf if keys_p[p, 0] == math.inf or keys_d[0, d] == math.inf else math.nan
            for term in range(scratch.terms.shape[2]):
                scratch.terms[p, d, term] = math.nan
    for p in range(n_prefill):
        for d in range(n_decode):
            keys_p[p, d] = math.nan
            keys_d[p, d] = math.nan
    return i * int(n_decode) + j if i >= 0 else -1


@kernel
def _pick(keys: Float64, side: int, racks: Int64, rack: int, tie_seed: np.uint64) -> int:
    """The candidate of the smallest key in a rack, or -1. An unknown key counts as the largest known one there."""
    worst = math.nan
    for at in range(len(racks)):
        key = keys[at, 0] if side == PREFILL else keys[0, at]
        outside = key == math.inf or (rack != ANY_RACK and racks[at] != rack)
        if not outside and not math.isnan(key) and not key <= worst:
            worst = key
    worst = 0.0 if math.isnan(worst) else worst
    best = math.inf
    chosen = -1
    for at in range(len(racks)):
        key = keys[at, 0] if side == PREFILL else keys[0, at]
        if key == math.inf or (rack != ANY_RACK and racks[at] != rack):
            continue
        key = worst if math.isnan(key) else key
        if key < best or (key == best and node_tie(tie_seed, at, side) < node_tie(tie_seed, chosen, side)):
            best = key
            chosen = at
    return chosen
