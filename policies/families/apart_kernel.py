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
from policies.kernel_types import PolicyArrays, PoolArrays, Scratch, ViewArrays

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
        j = _pick(policy, pool, view, request, tie_seed, DECODE, ANY_RACK, scratch)
        if j < 0:
            return -1
        i = _pick(policy, pool, view, request, tie_seed, PREFILL, pool.decode_rack[j], scratch)
        if i < 0:
            i = _pick(policy, pool, view, request, tie_seed, PREFILL, ANY_RACK, scratch)
        return i * int(view.decode.shape[0]) + j
    i = _pick(policy, pool, view, request, tie_seed, PREFILL, ANY_RACK, scratch)
    if i < 0:
        return -1
    j = -1
    if policy.same_rack == PREFILL_FIRST:
        j = _pick(policy, pool, view, request, tie_seed, DECODE, pool.prefill_rack[i], scratch)
    if j < 0:
        j = _pick(policy, pool, view, request, tie_seed, DECODE, ANY_RACK, scratch)
    return i * int(view.decode.shape[0]) + j


@kernel
def _key(
    policy: PolicyArrays, pool: PoolArrays, view: ViewArrays, request: tuple[int, int, int, int], side: int, at: int
) -> float:
    """What the family compares of one node."""
    prompt, _, _, turn = request
    if side == PREFILL:
        if policy.family == ROUND_ROBIN:
            return float((at - turn % view.prefill.shape[0]) % view.prefill.shape[0])
        backlog = view.prefill[at, BACKLOG_TOKENS]
        if policy.family == LMETRIC:
            work = backlog + float(prompt) - float(view.hit_tokens[at])
            return float(work * (view.prefill[at, BACKLOG_REQUESTS] + 1.0))
        return float(backlog)
    if policy.family == ROUND_ROBIN:
        n = view.decode.shape[0]
        return float((at - (turn + turn // view.prefill.shape[0]) % n) % n)
    if policy.family == LMETRIC:
        sequences = view.decode[at, RUNNING] + view.decode[at, RECEIVING] + view.decode[at, BOOKED]
        return float((sequences + 1.0) * (committed_blocks(view, at) * float(pool.block_tokens)))
    return float(view.decode[at, ACTIVE] / view.decode[at, USABLE])


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
    prompt, output, class_index, _ = request
    scratch.terms[:, :, :] = math.nan
    scratch.predicted_ttft_s[:, :] = math.nan
    scratch.predicted_tpot_s[:, :] = math.nan
    scratch.scores[:, :] = math.nan
    any_prefill = False
    for i in range(view.prefill.shape[0]):
        closed = view.prefill_open[i] == 0 or -(-prompt // pool.block_tokens) > pool.prefill_blocks[i]
        if closed or (policy.unknown == 1 and math.isnan(_key(policy, pool, view, request, PREFILL, i))):
            scratch.scores[i, :] = math.inf
        else:
            any_prefill = True
    any_decode = False
    for j in range(view.decode.shape[0]):
        estimated = estimated_blocks(pool, view, j, prompt, output)
        closed = view.decode_open[j] == 0 or estimated > view.decode[j, USABLE]
        if not closed and capacity:
            rate = capacity_rate(view.decode[j, GROWTH], view.decode[j, RELEASE])
            reserve = policy.reserve_blocks[class_index]
            closed = lacks_room(policy, room_blocks(view, j), estimated, rate, policy.horizon_s, reserve)
        if closed or (policy.unknown == 1 and math.isnan(_key(policy, pool, view, request, DECODE, j))):
            scratch.scores[:, j] = math.inf
        else:
            any_decode = True
    return any_prefill and any_decode


@kernel
def _pick(
    policy: PolicyArrays,
    pool: PoolArrays,
    view: ViewArrays,
    request: tuple[int, int, int, int],
    tie_seed: np.uint64,
    side: int,
    rack: int,
    scratch: Scratch,
) -> int:
    """The candidate node of the smallest key in a rack, or -1. An unknown key counts as the largest known one."""
    racks = pool.prefill_rack if side == PREFILL else pool.decode_rack
    worst = math.nan
    for at in range(len(racks)):
        if (rack == ANY_RACK or racks[at] == rack) and _is_open(scratch, side, at):
            key = _key(policy, pool, view, request, side, at)
            if not math.isnan(key) and not key <= worst:
                worst = key
    best = math.inf
    chosen = -1
    for at in range(len(racks)):
        if (rack == ANY_RACK or racks[at] == rack) and _is_open(scratch, side, at):
            key = _key(policy, pool, view, request, side, at)
            if math.isnan(key):
                key = 0.0 if math.isnan(worst) else worst
            tied = key == best and node_tie(tie_seed, at, side) < node_tie(tie_seed, chosen, side)
            if key < best or tied:
                best = key
                chosen = at
    return chosen


@kernel
def _is_open(scratch: Scratch, side: int, at: int) -> bool:
    """A node is a candidate if one of its pairs is."""
    other = 0
    if side == PREFILL:
        while other < scratch.scores.shape[1] and not math.isnan(scratch.scores[at, other]):
            other += 1
        return other < int(scratch.scores.shape[1])
    while other < scratch.scores.shape[0] and not math.isnan(scratch.scores[other, at]):
        other += 1
    return other < int(scratch.scores.shape[0])
