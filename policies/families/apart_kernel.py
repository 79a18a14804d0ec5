"""Compiled choice of P and D apart, whatever the family's keys. Twin of `policies.families.apart`."""

from __future__ import annotations

import math

import numpy as np

from policies.compiled import KeysFunction, kernel
from policies.families.parts_kernel import (
    GROWTH,
    RELEASE,
    USABLE,
    capacity_rate,
    estimated_blocks,
    lacks_room,
    node_tie,
    room_blocks,
)
from policies.kernel_types import Float64, Int64, PolicyArrays, PoolArrays, Scratch, Side, ViewArrays

DECODE_FIRST = 2
ANY_RACK = -1
PREFILL = 0
DECODE = 1


@kernel
def choose_apart(
    keys: KeysFunction,
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
    keys_p, keys_d, scores = scratch.keys_p, scratch.keys_d, scratch.scores  # inf = no candidate
    n_prefill, n_decode = scores.shape
    exclude, block = policy.unknown == 1, pool.block_tokens
    computed = view.placed[0] >= 0  # then its P stands first, and Ds have a turn of their own
    for i in range(n_prefill):
        closed = view.prefill_open[i] == 0 or -(-prompt // block) > pool.prefill_blocks[i]
        keys_p[i] = math.inf if closed else 0.0
    prefill_side = Side(
        policy.params,
        view.prefill,
        view.hit_tokens,
        prompt,
        estimated_output,
        block,
        turn,
        0,
        tie_seed,
        PREFILL,
        keys_p,
    )
    keys(prefill_side)
    any_prefill, any_decode = _known(keys_p, exclude), False
    for attempt in range(2):
        may_queue = policy.when_full == 0 or computed
        if attempt == 1 and (policy.capacity == 0 or not may_queue or (any_prefill and any_decode)):
            break
        for j in range(n_decode):
            estimated = estimated_blocks(prompt + estimated_output, view.resident_tokens[j], block)
            closed = view.decode_open[j] == 0 or estimated > view.decode[j, USABLE]
            if policy.capacity == 1 and attempt == 0 and not closed:
                rate = capacity_rate(view.decode[j, GROWTH], view.decode[j, RELEASE])
                room, reserve = room_blocks(view.decode, j), policy.reserve_blocks[class_index]
                closed = lacks_room(room, estimated, rate, policy.horizon_s, policy.horizon_s, reserve, exclude)
            keys_d[j] = math.inf if closed else 0.0
        decode_side = Side(
            policy.params,
            view.decode,
            view.resident_tokens,
            prompt,
            estimated_output,
            block,
            turn,
            0 if computed else turn // n_prefill,
            tie_seed,
            DECODE,
            keys_d,
        )
        keys(decode_side)
        any_decode = _known(keys_d, exclude)
    i, j = -1, -1
    if any_prefill and any_decode:
        if policy.same_rack == DECODE_FIRST and not computed:
            j = pick(keys_d, pool.decode_rack, ANY_RACK, tie_seed, DECODE)
            i = pick(keys_p, pool.prefill_rack, pool.decode_rack[j], tie_seed, PREFILL)
        else:
            i = pick(keys_p, pool.prefill_rack, ANY_RACK, tie_seed, PREFILL)
            if policy.same_rack != 0:
                j = pick(keys_d, pool.decode_rack, pool.prefill_rack[i], tie_seed, DECODE)
        if i < 0:
            i = pick(keys_p, pool.prefill_rack, ANY_RACK, tie_seed, PREFILL)
        if j < 0:
            j = pick(keys_d, pool.decode_rack, ANY_RACK, tie_seed, DECODE)
    for p in range(n_prefill):
        for d in range(n_decode):
            scores[p, d] = math.inf if keys_p[p] == math.inf or keys_d[d] == math.inf else math.nan
            scratch.predicted_ttft_s[p, d] = math.nan
            scratch.predicted_tpot_s[p, d] = math.nan
            for term in range(scratch.terms.shape[2]):
                scratch.terms[p, d, term] = math.nan
    return i * int(n_decode) + j if i >= 0 else -1


@kernel
def _known(keys: Float64, exclude: bool) -> bool:
    """Whether a candidate is left, after those of unknown keys are gone if they must."""
    left = False
    for at in range(len(keys)):
        if exclude and math.isnan(keys[at]):
            keys[at] = math.inf
        left = left or keys[at] != math.inf
    return left


@kernel
def pick(keys: Float64, racks: Int64, rack: int, tie_seed: np.uint64, side: int) -> int:
    """The candidate of the smallest key in a rack, or -1. An unknown key counts as the largest known one there."""
    worst = math.nan
    for at in range(len(racks)):
        outside = keys[at] == math.inf or (rack != ANY_RACK and racks[at] != rack)
        if not outside and not math.isnan(keys[at]) and not keys[at] <= worst:
            worst = keys[at]
    worst = 0.0 if math.isnan(worst) else worst
    best = math.inf
    chosen = -1
    for at in range(len(racks)):
        if keys[at] == math.inf or (rack != ANY_RACK and racks[at] != rack):
            continue
        key = worst if math.isnan(keys[at]) else keys[at]
        if key < best or (key == best and node_tie(tie_seed, at, side) < node_tie(tie_seed, chosen, side)):
            best = key
            chosen = at
    return chosen
