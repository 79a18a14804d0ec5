"""Compiled `routecal`: the terms of all pairs, in one sweep over D and P."""

from __future__ import annotations

import math

import numpy as np

from policies.compiled import kernel
from policies.families.parts_kernel import (
    AVAILABLE,
    BACKLOG_REQUESTS,
    BACKLOG_TOKENS,
    BOOKED,
    BOOKED_TOKENS,
    GROWTH,
    PREFILL_AGE,
    RECEIVING,
    RECEIVING_TOKENS,
    RELEASE,
    RUNNING,
    RUNNING_TOKENS,
    SENDING,
    USABLE,
    blocked_s,
    capacity_rate,
    class_harm,
    committed_blocks,
    compute_s,
    estimated_blocks,
    exposed_s,
    lacks_room,
    least,
    met,
    pressure_of,
    queue_s,
    reservation_s,
    room_blocks,
)
from policies.families.score_kernel import FULL, ROOM, choose_best
from policies.kernel_types import FACTOR, KIND, LawArrays, PolicyArrays, PoolArrays, Scratch, ViewArrays
from policies.law_kernel import decode_residual, decode_s, decode_with


@kernel
def choose_pair(
    policy: PolicyArrays,
    laws: LawArrays,
    pool: PoolArrays,
    view: ViewArrays,
    prompt: int,
    estimated_output: int,
    expected_output: int,
    class_index: int,
    waited_s: float,
    tie_seed: np.uint64,
    scratch: Scratch,
) -> int:
    """p · D + d of the lowest score, or -1."""
    scores, terms = scratch.scores, scratch.terms
    ttft_s, tpot_s = scratch.predicted_ttft_s, scratch.predicted_tpot_s
    n_prefill, n_decode = scores.shape
    block, budget = pool.block_tokens, pool.chunk_tokens
    need = -(-prompt // block)
    kv_bytes, wire = float(pool.kv_bytes_per_token), laws.wire_frac
    unshared, overlap, last = laws.alone == 1, laws.overlap_frac, laws.last_frac
    # P's parts, into every pair of its row; C(h) and the egress share wait in the places of the predictions. Before
    # their node factors C(0) and C(h) are those of the P before, if it is of the same type and has the same hit.
    kind, hit_before = -1.0, 0
    whole, after_hit = 0.0, 0.0
    computed = view.placed[0] >= 0
    for i in range(n_prefill):
        if view.prefill_open[i] == 0 or need > pool.prefill_blocks[i]:
            for j in range(n_decode):
                scores[i, j] = math.inf
            continue
        hit_tokens, egress = view.hit_tokens[i], laws.egress[i]
        backlog, requests = view.prefill[i, BACKLOG_TOKENS], view.prefill[i, BACKLOG_REQUESTS]
        wait = queue_s(laws.prefill, i, backlog, requests, view.prefill[i, PREFILL_AGE], float(budget))
        wait += blocked_s(prompt, hit_tokens, view.prefill[i, AVAILABLE], block, kv_bytes * wire, egress)
        if laws.prefill.law[i, KIND] != kind:
            kind, hit_before = laws.prefill.law[i, KIND], 0
            whole = 0.0 if computed else compute_s(laws.prefill, i, prompt, 0, budget)
            after_hit = whole
        if hit_tokens != hit_before:
            hit_before = hit_tokens
            after_hit = whole if hit_tokens == 0 else compute_s(laws.prefill, i, prompt, hit_tokens, budget)
        factor = laws.prefill.law[i, FACTOR]
        compute, compute_hit = whole * factor, after_hit * factor
        share = egress if unshared else egress / (1.0 + view.prefill[i, SENDING])
        crowd = wait * requests
        for j in range(n_decode):
            scores[i, j] = ROOM
            terms[i, j, 0] = wait
            terms[i, j, 1] = compute
            terms[i, j, 8] = crowd
            ttft_s[i, j] = compute_hit
            tpot_s[i, j] = share
    high_water, horizon, exclude = policy.high_water, policy.horizon_s, policy.unknown == 1
    reserve = policy.reserve_blocks[class_index]
    ttft_left = policy.ttft_target_s[class_index] - waited_s
    unknown = False
    weight_harm, weight_crowd = policy.weights[class_index, 7], policy.weights[class_index, 8]
    for j in range(n_decode):
        usable, resident = view.decode[j, USABLE], view.resident_tokens[j]
        estimated = estimated_blocks(prompt + estimated_output, resident, block)
        if view.decode_open[j] == 0 or estimated > usable:
            for i in range(n_prefill):
                scores[i, j] = math.inf
            continue
        # D's parts
        running, running_tokens = view.decode[j, RUNNING], view.decode[j, RUNNING_TOKENS]
        receiving = view.decode[j, RECEIVING]
        reservation = reservation_s(view.decode, j, float(need), policy.release_floor, policy.wait_cap_s)
        boundary = 0.0
        if not running <= 0.0:
            boundary = 0.5 * decode_s(laws.decode, j, running, running_tokens)
        sequences = running + receiving + view.decode[j, BOOKED] + 1.0
        tokens = running_tokens + view.decode[j, RECEIVING_TOKENS] + view.decode[j, BOOKED_TOKENS] + float(prompt)
        residual, until = decode_residual(laws.decode, j, sequences, tokens)
        first_step = decode_with(laws.decode.law[j], residual, sequences, tokens)
        later = tokens + 0.5 * float(expected_output)
        if not later < until:
            residual, until = decode_residual(laws.decode, j, sequences, later)
        tpot = decode_with(laws.decode.law[j], residual, sequences, later)
        met_tpot = met(policy.tpot_target_s[class_index], tpot, policy.risk_tpot)
        harm = math.nan
        if weight_harm != 0.0:
            before = decode_s(laws.decode, j, sequences - 1.0, tokens - float(prompt))
            harm = class_harm(view.running_by_class, j, policy.tpot_target_s, before, first_step, policy.risk_tpot)
        decode_wait = reservation + boundary + first_step
        ingress = laws.ingress[j] if unshared else laws.ingress[j] / (1.0 + receiving)
        size, size_now = float(prompt) * kv_bytes * wire, float(prompt - resident) * kv_bytes * wire
        setup = laws.descriptor_s * (laws.descriptors_per_block * float(need))
        setup_now = laws.descriptor_s * (laws.descriptors_per_block * float(need - resident // block))
        growth, release = view.decode[j, GROWTH], view.decode[j, RELEASE]
        net, rate = growth - release, capacity_rate(growth, release)
        room, held = room_blocks(view.decode, j), committed_blocks(view.decode, j) + estimated
        alone = estimated / usable
        if policy.decode_moment == 1:
            scratch.own[j, 0] = pressure_of(alone, (held + net * horizon) / usable, high_water)
            scratch.own[j, 1] = 1.0 - met_tpot
        rare = (0.0 if weight_harm == 0.0 else harm) + 0.0
        for i in range(n_prefill):
            if scores[i, j] == math.inf:
                continue
            wait, compute, share = terms[i, j, 0], terms[i, j, 1], tpot_s[i, j]
            path, link = pool.path_kind[i, j], pool.path_uplink[i, j]
            if link >= 0:
                speed = laws.uplink[link]
                share = least(share, speed if unshared else speed / (1.0 + view.uplink_flows[link]))
            bandwidth = least(share, ingress) * laws.efficiency[path]
            transfer = laws.alpha_s[path] + setup + exposed_s(size / bandwidth, overlap * compute, last)
            compute_now, transfer_now, benefit = compute, transfer, 0.0
            if view.hit_tokens[i] > 0 or resident > 0:
                compute_now = ttft_s[i, j]
                left = exposed_s(size_now / bandwidth, overlap * compute_now, last)
                transfer_now = laws.alpha_s[path] + setup_now + left
                benefit = compute + transfer - compute_now - transfer_now
                if benefit <= 0.0:  # a hit that does not pay counts as none
                    compute_now, transfer_now, benefit = compute, transfer, 0.0
            arrival = wait + compute_now + reservation + transfer_now
            ttft = arrival + boundary + first_step
            delta = horizon if horizon < arrival else arrival
            pressure = pressure_of(alone, (held + net * delta) / usable, high_water)
            risk = 1.0 - met(ttft_left, ttft, policy.risk_ttft) * met_tpot
            terms[i, j, 2] = transfer
            terms[i, j, 3] = decode_wait
            terms[i, j, 4] = pressure
            terms[i, j, 5] = risk
            terms[i, j, 6] = benefit
            terms[i, j, 7] = harm
            ttft_s[i, j] = ttft
            tpot_s[i, j] = tpot
            if lacks_room(room, estimated, rate, delta, horizon, reserve, exclude):
                scores[i, j] = FULL
            # A sum with an unknown part is unknown.
            last_two = rare if weight_crowd == 0.0 else rare + terms[i, j, 8]
            if math.isnan(wait + compute + transfer + decode_wait + pressure + risk + benefit + last_two):
                unknown = True
    # fmt: off
    best = choose_best(
        policy.weights, class_index, exclude, policy.when_full == 0 or computed, policy.temperature_p_s,
        policy.temperature_d_s, tie_seed, unknown, policy.decode_moment == 1 and not computed,
        scores, terms, ttft_s, tpot_s, scratch.own,
    )
    # fmt: on
    if policy.hysteresis_s > 0.0 and best >= 0 and view.placed[1] >= 0:
        kept = scores[view.placed[1], view.placed[2]]
        if kept - scores[best // n_decode, best % n_decode] <= policy.hysteresis_s:
            return int(view.placed[1] * n_decode + view.placed[2])
    return best
