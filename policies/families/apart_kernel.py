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
    RECEIVING,
    RUNNING,
    USABLE,
    committed_blocks,
    decode_tie,
    estimated_blocks,
    lacks_room,
    prefill_tie,
)
from policies.families.registry import CAPACITY, FAMILIES
from policies.kernel_types import PolicyArrays, PoolArrays, Scratch, ViewArrays

LMETRIC = FAMILIES.index("lmetric")
ROUND_ROBIN = FAMILIES.index("round_robin")
NEEDS_ROOM = tuple(family in CAPACITY for family in FAMILIES)
PREFILL_FIRST = 1
DECODE_FIRST = 2
ANY_RACK = -1


@kernel
def choose_apart(
    policy: PolicyArrays,
    pool: PoolArrays,
    view: ViewArrays,
    prompt_tokens: int,
    estimated_output: int,
    class_index: int,
    tie_seed: np.uint64,
    turn: int,
    scratch: Scratch,
) -> int:
    """p · D + d of the smallest keys, or -1."""
    capacity = NEEDS_ROOM[policy.family]
    request = (prompt_tokens, estimated_output, class_index, turn)
    if not _mark(policy, pool, view, request, capacity, scratch) and capacity and policy.when_full == 0:
        _mark(policy, pool, view, request, False, scratch)
    if policy.same_rack == DECODE_FIRST:
        j = _pick_decode(policy, pool, view, request, tie_seed, ANY_RACK, scratch)
        if j < 0:
            return -1
        i = _pick_prefill(policy, pool, view, request, tie_seed, pool.decode_rack[j], scratch)
        if i < 0:
            i = _pick_prefill(policy, pool, view, request, tie_seed, ANY_RACK, scratch)
        return i * view.decode.shape[0] + j
    i = _pick_prefill(policy, pool, view, request, tie_seed, ANY_RACK, scratch)
    if i < 0:
        return -1
    j = -1
    if policy.same_rack == PREFILL_FIRST:
        j = _pick_decode(policy, pool, view, request, tie_seed, pool.prefill_rack[i], scratch)
    if j < 0:
        j = _pick_decode(policy, pool, view, request, tie_seed, ANY_RACK, scratch)
    return i * view.decode.shape[0] + j


@kernel
def _prefill_key(policy: PolicyArrays, view: ViewArrays, i: int, prompt: int, turn: int) -> float:
    if policy.family == ROUND_ROBIN:
        n = view.prefill.shape[0]
        return float((i - turn % n) % n)
    row = view.prefill[i]
    if policy.family == LMETRIC:
        return (row[BACKLOG_TOKENS] + float(prompt) - float(view.hit_tokens[i])) * (row[BACKLOG_REQUESTS] + 1.0)
    return row[BACKLOG_TOKENS]


@kernel
def _decode_key(policy: PolicyArrays, pool: PoolArrays, view: ViewArrays, j: int, turn: int) -> float:
    if policy.family == ROUND_ROBIN:
        n = view.decode.shape[0]
        return float((j - (turn + turn // view.prefill.shape[0]) % n) % n)
    row = view.decode[j]
    if policy.family == LMETRIC:
        sequences = row[RUNNING] + row[RECEIVING] + row[BOOKED]
        return (sequences + 1.0) * (committed_blocks(view, j) * float(pool.block_tokens))
    return row[ACTIVE] / row[USABLE]


@kernel
def _mark(
    policy: PolicyArrays,
    pool: PoolArrays,
    view: ViewArrays,
    request: tuple[int, int, int, int],
    capacity: bool,
    scratch: Scratch,
) -> bool:
    """Scores: NaN for a candidate, inf for the rest; no terms and no predictions. True if there is a candidate."""
    prompt, output, class_index, turn = request
    scratch.terms[:, :, :] = math.nan
    scratch.predicted_ttft_s[:, :] = math.nan
    scratch.predicted_tpot_s[:, :] = math.nan
    scratch.scores[:, :] = math.nan
    any_prefill = False
    for i in range(view.prefill.shape[0]):
        closed = view.prefill_open[i] == 0 or -(-prompt // pool.block_tokens) > pool.prefill_blocks[i]
        if closed or (policy.unknown == 1 and math.isnan(_prefill_key(policy, view, i, prompt, turn))):
            scratch.scores[i, :] = math.inf
        else:
            any_prefill = True
    any_decode = False
    for j in range(view.decode.shape[0]):
        estimated = estimated_blocks(pool, view, j, prompt, output)
        closed = view.decode_open[j] == 0 or estimated > view.decode[j, USABLE]
        if not closed and capacity:
            closed = lacks_room(policy, view, j, estimated, policy.horizon_s, class_index)
        if closed or (policy.unknown == 1 and math.isnan(_decode_key(policy, pool, view, j, turn))):
            scratch.scores[:, j] = math.inf
        else:
            any_decode = True
    return any_prefill and any_decode


@kernel
def _pick_prefill(
    policy: PolicyArrays,
    pool: PoolArrays,
    view: ViewArrays,
    request: tuple[int, int, int, int],
    tie_seed: np.uint64,
    rack: int,
    scratch: Scratch,
) -> int:
    """The candidate P of the smallest key in a rack, or -1."""
    worst = math.nan
    for turn_two in range(2):
        best = math.inf
        chosen = -1
        for i in range(view.prefill.shape[0]):
            if not _row_open(scratch, i) or (rack != ANY_RACK and pool.prefill_rack[i] != rack):
                continue
            key = _prefill_key(policy, view, i, request[0], request[3])
            if turn_two == 0:
                if not math.isnan(key) and not key <= worst:
                    worst = key
                continue
            if math.isnan(key):
                key = 0.0 if math.isnan(worst) else worst
            tied = key == best and prefill_tie(tie_seed, i) < prefill_tie(tie_seed, chosen)
            if key < best or tied:
                best = key
                chosen = i
    return chosen


@kernel
def _pick_decode(
    policy: PolicyArrays,
    pool: PoolArrays,
    view: ViewArrays,
    request: tuple[int, int, int, int],
    tie_seed: np.uint64,
    rack: int,
    scratch: Scratch,
) -> int:
    """The candidate D of the smallest key in a rack, or -1."""
    worst = math.nan
    for turn_two in range(2):
        best = math.inf
        chosen = -1
        for j in range(view.decode.shape[0]):
            if not _column_open(scratch, j) or (rack != ANY_RACK and pool.decode_rack[j] != rack):
                continue
            key = _decode_key(policy, pool, view, j, request[3])
            if turn_two == 0:
                if not math.isnan(key) and not key <= worst:
                    worst = key
                continue
            if math.isnan(key):
                key = 0.0 if math.isnan(worst) else worst
            tied = key == best and decode_tie(tie_seed, j) < decode_tie(tie_seed, chosen)
            if key < best or tied:
                best = key
                chosen = j
    return chosen


@kernel
def _row_open(scratch: Scratch, i: int) -> bool:
    for j in range(scratch.scores.shape[1]):
        if math.isnan(scratch.scores[i, j]):
            return True
    return False


@kernel
def _column_open(scratch: Scratch, j: int) -> bool:
    for i in range(scratch.scores.shape[0]):
        if math.isnan(scratch.scores[i, j]):
            return True
    return False
