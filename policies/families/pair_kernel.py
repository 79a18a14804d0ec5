"""Compiled `routecal`: terms of all pairs, the rule for unknown terms, score, jitter, ties."""

from __future__ import annotations

import math

import numpy as np

from policies.compiled import kernel
from policies.families.parts_kernel import (
    BOOKED,
    BOOKED_TOKENS,
    GROWTH,
    RECEIVING,
    RECEIVING_TOKENS,
    RELEASE,
    RUNNING,
    RUNNING_TOKENS,
    SENDING,
    USABLE,
    capacity_rate,
    committed_blocks,
    compute_s,
    decode_draw,
    decode_s,
    estimated_blocks,
    lacks_room,
    met,
    pair_tie,
    prefill_draw,
    prefill_wait_s,
    reservation_s,
    room_blocks,
)
from policies.kernel_types import LawArrays, PolicyArrays, PoolArrays, Scratch, ViewArrays

BENEFIT = 6
ROOM = 0.0  # marks in `scores` until the scores are there
FULL = 1.0


@kernel
def choose_pair(
    policy: PolicyArrays,
    laws: LawArrays,
    pool: PoolArrays,
    view: ViewArrays,
    prompt_tokens: int,
    estimated_output: int,
    expected_output: int,
    class_index: int,
    waited_s: float,
    tie_seed: np.uint64,
    scratch: Scratch,
) -> int:
    """p · D + d of the lowest score, or -1."""
    _open_rows(laws, pool, view, prompt_tokens, scratch)
    unknown = False
    for j in range(view.decode.shape[0]):
        estimated = estimated_blocks(pool, view, j, prompt_tokens, estimated_output)
        if view.decode_open[j] == 0 or estimated > view.decode[j, USABLE]:
            for i in range(view.prefill.shape[0]):
                scratch.scores[i, j] = math.inf
            continue
        request = (prompt_tokens, expected_output, class_index, waited_s)
        if _fill_column(policy, laws, pool, view, request, j, estimated, scratch):
            unknown = True
    mark = _candidates(policy, class_index, unknown, scratch)
    return _best(policy, class_index, tie_seed, mark, unknown, scratch)


@kernel
def _open_rows(laws: LawArrays, pool: PoolArrays, view: ViewArrays, prompt: int, scratch: Scratch) -> None:
    """P's parts, in every pair of its row; C(h) and the egress share wait in the places of the predictions."""
    for i in range(view.prefill.shape[0]):
        if view.prefill_open[i] == 0 or -(-prompt // pool.block_tokens) > pool.prefill_blocks[i]:
            for j in range(view.decode.shape[0]):
                scratch.scores[i, j] = math.inf
            continue
        wait = prefill_wait_s(laws, pool, view, i, prompt)
        compute = compute_s(laws, i, prompt, 0, pool.chunk_tokens)
        hit = compute
        if view.hit_tokens[i] != 0:
            hit = compute_s(laws, i, prompt, view.hit_tokens[i], pool.chunk_tokens)
        share = pool.egress[i] / (1.0 + view.prefill[i, SENDING])
        for j in range(view.decode.shape[0]):
            scratch.scores[i, j] = ROOM
            scratch.terms[i, j, 0] = wait
            scratch.terms[i, j, 1] = compute
            scratch.predicted_ttft_s[i, j] = hit
            scratch.predicted_tpot_s[i, j] = share


@kernel
def _fill_column(
    policy: PolicyArrays,
    laws: LawArrays,
    pool: PoolArrays,
    view: ViewArrays,
    request: tuple[int, int, int, float],
    j: int,
    estimated: float,
    scratch: Scratch,
) -> bool:
    """Terms of every pair with D j; True if one is unknown."""
    prompt, expected_output, class_index, waited_s = request
    # Elements, not row views: a view counts references, which costs more than the arithmetic.
    usable = view.decode[j, USABLE]
    running, running_tokens = view.decode[j, RUNNING], view.decode[j, RUNNING_TOKENS]
    receiving = view.decode[j, RECEIVING]
    resident = view.resident_tokens[j]
    size = float(prompt) * float(pool.kv_bytes_per_token)
    size_now = float(prompt - resident) * float(pool.kv_bytes_per_token)
    reservation = reservation_s(policy, pool, view, j, prompt)
    boundary = 0.0 if running <= 0.0 else 0.5 * decode_s(laws, j, running, running_tokens)
    sequences = running + receiving + view.decode[j, BOOKED]
    tokens = running_tokens + view.decode[j, RECEIVING_TOKENS] + view.decode[j, BOOKED_TOKENS] + float(prompt)
    first_step = decode_s(laws, j, sequences + 1.0, tokens)
    tpot = decode_s(laws, j, sequences + 1.0, tokens + 0.5 * float(expected_output))
    decode_wait = reservation + boundary + first_step
    ingress = pool.ingress[j] / (1.0 + receiving)
    alone = estimated / usable
    held = committed_blocks(view, j) + estimated
    growth, release = view.decode[j, GROWTH], view.decode[j, RELEASE]
    net = growth - release
    rate = capacity_rate(growth, release)
    room = room_blocks(view, j)
    reserve = policy.reserve_blocks[class_index]
    met_tpot = met(policy.tpot_target_s[class_index], tpot, policy.risk_tpot)
    ttft_left = policy.ttft_target_s[class_index] - waited_s
    unknown = False
    for i in range(view.prefill.shape[0]):
        if scratch.scores[i, j] == math.inf:
            continue
        wait = scratch.terms[i, j, 0]
        compute = scratch.terms[i, j, 1]
        share = scratch.predicted_tpot_s[i, j]
        path = pool.path_kind[i, j]
        link = pool.path_uplink[i, j]
        if link >= 0:
            share = _least(share, pool.uplink[link] / (1.0 + view.uplink_flows[link]))
        bandwidth = _least(share, ingress) * laws.efficiency[path]
        transfer = laws.alpha_s[path] + size / bandwidth
        compute_now = compute
        transfer_now = transfer
        benefit = 0.0
        if view.hit_tokens[i] > 0 or resident > 0:
            compute_now = scratch.predicted_ttft_s[i, j]
            transfer_now = laws.alpha_s[path] + size_now / bandwidth
            benefit = compute + transfer - compute_now - transfer_now
            if benefit <= 0.0:  # a hit that does not pay counts as none
                compute_now = compute
                transfer_now = transfer
                benefit = 0.0
        arrival = wait + compute_now + reservation + transfer_now
        ttft = arrival + boundary + first_step
        delta = policy.horizon_s if policy.horizon_s < arrival else arrival
        projected = (held + net * delta) / usable
        above = (alone if projected < alone else projected) - policy.high_water
        above = (0.0 if above < 0.0 else above) / (1.0 - policy.high_water)
        risk = 1.0 - met(ttft_left, ttft, policy.risk_ttft) * met_tpot
        scratch.terms[i, j, 2] = transfer
        scratch.terms[i, j, 3] = decode_wait
        scratch.terms[i, j, 4] = above * above
        scratch.terms[i, j, 5] = risk
        scratch.terms[i, j, BENEFIT] = benefit
        scratch.predicted_ttft_s[i, j] = ttft
        scratch.predicted_tpot_s[i, j] = tpot
        if lacks_room(policy, room, estimated, rate, delta, reserve):
            scratch.scores[i, j] = FULL
        # Unknown parts stay unknown in a sum; pressure and risk can be unknown on their own.
        if math.isnan(wait + compute + transfer + decode_wait + above + risk + benefit):
            unknown = True
    return unknown


@kernel
def _candidates(policy: PolicyArrays, class_index: int, unknown: bool, scratch: Scratch) -> float:
    """Highest mark that a candidate may have: ROOM, or FULL if nothing has room and requests may queue."""
    room = 0
    full = 0
    for i in range(scratch.scores.shape[0]):
        for j in range(scratch.scores.shape[1]):
            if scratch.scores[i, j] == math.inf:
                continue
            if unknown and policy.unknown == 1 and _lacks_a_term(policy, class_index, i, j, scratch):
                scratch.scores[i, j] = math.inf
            elif scratch.scores[i, j] == ROOM:
                room += 1
            else:
                full += 1
    if room == 0 and full > 0 and policy.when_full == 0:
        return FULL
    return ROOM


@kernel
def _lacks_a_term(policy: PolicyArrays, class_index: int, i: int, j: int, scratch: Scratch) -> bool:
    for term in range(BENEFIT + 1):
        if policy.weights[class_index, term] != 0.0 and math.isnan(scratch.terms[i, j, term]):
            return True
    return False


@kernel
def _worst(unknown: bool, mark: float, term: int, scratch: Scratch) -> float:
    """Worst known value of a term among the candidates; 0 if nobody knows it, or nothing is unknown."""
    if not unknown:
        return 0.0
    worst = math.nan
    for i in range(scratch.scores.shape[0]):
        for j in range(scratch.scores.shape[1]):
            value = scratch.terms[i, j, term]
            if scratch.scores[i, j] > mark or math.isnan(value):
                continue
            if math.isnan(worst) or (value < worst if term == BENEFIT else value > worst):
                worst = value
    return 0.0 if math.isnan(worst) else worst


@kernel
def _part(weight: float, value: float, worst: float) -> float:
    if weight == 0.0:
        return 0.0
    return weight * (worst if math.isnan(value) else value)


@kernel
def _best(
    policy: PolicyArrays, class_index: int, tie_seed: np.uint64, mark: float, unknown: bool, scratch: Scratch
) -> int:
    """Scores of the candidates, NaN predictions for the rest, and the winner."""
    w_0, w_1, w_2 = policy.weights[class_index, 0], policy.weights[class_index, 1], policy.weights[class_index, 2]
    w_3, w_4, w_5 = policy.weights[class_index, 3], policy.weights[class_index, 4], policy.weights[class_index, 5]
    w_6 = policy.weights[class_index, BENEFIT]
    worst_0 = _worst(unknown, mark, 0, scratch)
    worst_1 = _worst(unknown, mark, 1, scratch)
    worst_2 = _worst(unknown, mark, 2, scratch)
    worst_3 = _worst(unknown, mark, 3, scratch)
    worst_4 = _worst(unknown, mark, 4, scratch)
    worst_5 = _worst(unknown, mark, 5, scratch)
    worst_6 = _worst(unknown, mark, BENEFIT, scratch)
    drawn = policy.temperature_p_s != 0.0 or policy.temperature_d_s != 0.0
    n_decode = scratch.scores.shape[1]
    best = math.inf
    chosen = -1
    for i in range(scratch.scores.shape[0]):
        jitter_p = policy.temperature_p_s * prefill_draw(tie_seed, i) if drawn else 0.0
        for j in range(n_decode):
            if scratch.scores[i, j] > mark:
                scratch.scores[i, j] = math.inf
                for term in range(BENEFIT + 1):
                    scratch.terms[i, j, term] = math.nan
                scratch.predicted_ttft_s[i, j] = math.nan
                scratch.predicted_tpot_s[i, j] = math.nan
                continue
            score = _part(w_0, scratch.terms[i, j, 0], worst_0) + _part(w_1, scratch.terms[i, j, 1], worst_1)
            score = score + _part(w_2, scratch.terms[i, j, 2], worst_2) + _part(w_3, scratch.terms[i, j, 3], worst_3)
            score = score + _part(w_4, scratch.terms[i, j, 4], worst_4) + _part(w_5, scratch.terms[i, j, 5], worst_5)
            score = score - _part(w_6, scratch.terms[i, j, BENEFIT], worst_6)
            if drawn:
                score += jitter_p + policy.temperature_d_s * decode_draw(tie_seed, j)
            scratch.scores[i, j] = score
            tied = score == best and pair_tie(tie_seed, i, j) < pair_tie(
                tie_seed, chosen // n_decode, chosen % n_decode
            )
            if score < best or tied:
                best = score
                chosen = i * n_decode + j
    return chosen


@kernel
def _least(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return b if b < a else a
