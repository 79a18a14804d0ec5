"""The terms of a pair, in plain Python: docs/decision.md in code, operation by operation.

Kernels repeat the order of operations and must agree bit for bit. Inside this module unknown is NaN, so that what is
made from an unknown is unknown; comparisons are written so that NaN passes through them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, StepLaws
from models.portable.transfer import TransferLaw, egress, ingress
from policies.policy import Policy
from policies.risk import met
from policies.view import DecodeView, PrefillView, RouterView

HARM = 7
"""Index of NeighbourHarm."""


@dataclass(frozen=True, slots=True)
class PrefillParts:
    """What a pair's terms take from P alone. Seconds; `share` in bytes/s for one more transfer."""

    wait_s: float  # Q
    compute_s: float  # C(0)
    hit_compute_s: float  # C(h)
    share: float


@dataclass(frozen=True, slots=True)
class DecodeParts:
    """What a pair's terms take from D alone."""

    reservation_s: float  # R
    boundary_s: float  # B_D
    first_step_s: float  # S
    tpot_s: float
    share: float
    estimated_blocks: float
    committed_blocks: float
    room_blocks: float  # free + reclaimable - booked
    harm: float  # NeighbourHarm; NaN also where its weight is 0
    own_pressure: float  # ProjectedKVPressure at the horizon
    own_risk: float  # 1 - met_TPOT


@dataclass(frozen=True, slots=True)
class PairTerms:
    """`values` in the order of TERMS; `arrival_s` = t_arr - now. NaN = unknown."""

    values: tuple[float, ...]
    arrival_s: float
    ttft_s: float
    tpot_s: float


def known(value: float | None) -> float:
    """NaN for unknown."""
    return math.nan if value is None else float(value)


def blocks_of(tokens: int, block_tokens: int) -> int:
    """Blocks that hold `tokens`."""
    return -(-tokens // block_tokens)


def estimated_blocks(view: RouterView, node: DecodeView) -> float:
    """Blocks that the request will take on D at its booking quantile, less those that D has."""
    tokens = view.request.prompt_tokens + view.request.estimated_output_tokens
    return float(blocks_of(tokens, view.block_tokens) - node.resident_tokens // view.block_tokens)


def prefill_parts(view: RouterView, node: PrefillView, estimators: Estimators) -> PrefillParts:
    """Q, C(0), C(h) and the egress share of one P."""
    law, transfer = estimators.prefill, estimators.transfer
    prompt, budget = view.request.prompt_tokens, view.chunk_tokens
    of_type, factor = law.of(node.name), law.factor(node.name)
    compute = 0.0 if view.request.prefilled_on is not None else _compute_s(of_type, prompt, 0, budget) * factor
    hit = compute if node.hit_tokens == 0 else _compute_s(of_type, prompt, node.hit_tokens, budget) * factor
    need = float(blocks_of(prompt, view.block_tokens)) - float(node.hit_tokens) / float(view.block_tokens)
    missing = _at_least_zero(need - known(node.available_blocks))
    port = node.port_bytes_per_s * transfer.port(egress(node.name))
    blocked = missing * float(view.block_tokens) * (float(view.kv_bytes_per_token) * transfer.wire_frac) / port
    return PrefillParts(
        wait_s=_queue_s(node, law, float(budget)) + blocked,
        compute_s=compute,
        hit_compute_s=hit,
        share=_one_more(port, node.sending_requests, transfer),
    )


def decode_parts(view: RouterView, node: DecodeView, estimators: Estimators, policy: Policy) -> DecodeParts:
    """R, B_D, S, TPOT, the ingress share and the block counts of one D."""
    request, law = view.request, estimators.decode
    active, reserved, inflight = known(node.active_blocks), known(node.reserved_blocks), known(node.inflight_blocks)
    free = node.usable_blocks - active - reserved - inflight
    running, running_tokens = known(node.running_requests), known(node.running_tokens)
    receiving = known(node.receiving_requests)
    port = node.port_bytes_per_s * estimators.transfer.port(ingress(node.name))
    sequences = running + receiving + node.booked_requests
    tokens = running_tokens + known(node.receiving_tokens) + node.booked_tokens + float(request.prompt_tokens)
    boundary = 0.0 if running <= 0.0 else 0.5 * _decode_s(node.name, law, running, running_tokens)
    first_step = _decode_s(node.name, law, sequences + 1.0, tokens)
    tpot = _decode_s(node.name, law, sequences + 1.0, tokens + 0.5 * float(request.expected_output_tokens))
    estimated, committed = estimated_blocks(view, node), active + reserved + inflight + node.booked_blocks
    target = policy.classes[request.class_index].tpot_target_s
    return DecodeParts(
        reservation_s=_reservation_s(view, node, free, policy),
        boundary_s=boundary,
        first_step_s=first_step,
        tpot_s=tpot,
        share=_one_more(port, node.receiving_requests, estimators.transfer),
        estimated_blocks=estimated,
        committed_blocks=committed,
        room_blocks=free + known(node.reclaimable_blocks) - node.booked_blocks,
        harm=_harm(view, node, law, policy, (sequences, tokens, first_step)),
        own_pressure=_pressure(node, (estimated, committed), policy.horizon_s, policy.high_water),
        own_risk=1.0 - met(target, tpot, policy.risk_tpot),
    )


def pair_terms(
    view: RouterView,
    at: tuple[int, int],
    parts: tuple[PrefillParts, DecodeParts],
    estimators: Estimators,
    policy: Policy,
) -> PairTerms:
    """The terms of the pair `at` = (P index, D index), and what it predicts."""
    prefill, decode = view.prefill[at[0]], view.decode[at[1]]
    p, d = parts
    share = _share(view, (prefill, decode), p.share, d.share, estimators.transfer)
    transfer = _exposed_s(view, (prefill, decode), 0, share, p.compute_s, estimators.transfer)
    compute_now, transfer_now, benefit = p.compute_s, transfer, 0.0
    if prefill.hit_tokens > 0 or decode.resident_tokens > 0:
        compute_now = p.hit_compute_s
        resident = decode.resident_tokens
        transfer_now = _exposed_s(view, (prefill, decode), resident, share, compute_now, estimators.transfer)
        benefit = p.compute_s + transfer - compute_now - transfer_now
        if benefit <= 0.0:  # a hit that does not pay counts as none
            compute_now, transfer_now, benefit = p.compute_s, transfer, 0.0
    arrival = p.wait_s + compute_now + d.reservation_s + transfer_now
    ttft = arrival + d.boundary_s + d.first_step_s
    delta = policy.horizon_s if policy.horizon_s < arrival else arrival
    pressure = _pressure(decode, (d.estimated_blocks, d.committed_blocks), delta, policy.high_water)
    limits = policy.classes[view.request.class_index]
    ttft_left = None if limits.ttft_target_s is None else limits.ttft_target_s - view.request.waited_s
    risk = 1.0 - met(ttft_left, ttft, policy.risk_ttft) * met(limits.tpot_target_s, d.tpot_s, policy.risk_tpot)
    wait = d.reservation_s + d.boundary_s + d.first_step_s
    crowd = p.wait_s * known(prefill.backlog_requests)
    values = (p.wait_s, p.compute_s, transfer, wait, pressure, risk, benefit, d.harm, crowd)
    return PairTerms(values, arrival, ttft, d.tpot_s)


def _compute_s(law: StepLaw, prompt: int, cached: int, budget: int) -> float:
    total, position = 0.0, cached
    while position < prompt:
        chunk = min(budget, prompt - position)
        total += law.prefill_s(float(chunk), float(chunk) * float(position))
        position += chunk
    return total


def _queue_s(node: PrefillView, law: StepLaws, budget: float) -> float:
    backlog = known(node.backlog_tokens)
    if math.isnan(backlog):
        return math.nan
    if backlog <= 0.0:
        return 0.0
    first = budget if budget < backlog else backlog
    rest = backlog - first
    full = float(math.floor(rest / budget))
    left = rest - full * budget
    requests = known(node.backlog_requests)

    def step(tokens: float) -> float:
        share = requests * tokens / backlog
        return law.prefill_s(node.name, tokens, 0.0, share if share > 1.0 else 1.0)  # unknown requests: one prompt

    total = step(first) + full * step(budget)
    if left > 0.0:
        total += step(left) - law.prefill_s(node.name, 0.0, 0.0, 0.0)
    return _at_least_zero(total - known(node.age_s))


def _decode_s(node: str, law: StepLaws, sequences: float, tokens: float) -> float:
    # A law clips at its cap by a comparison, which would turn unknown tokens into the cap.
    if math.isnan(sequences) or math.isnan(tokens):
        return math.nan
    return law.decode_s(node, sequences, tokens)


def _harm(view: RouterView, node: DecodeView, law: StepLaws, policy: Policy, load: tuple[float, float, float]) -> float:
    """Running sequences that the longer step is expected to push past their targets. `load`: N, tokens, first step."""
    sequences, tokens, after = load
    if policy.classes[view.request.class_index].weights[HARM] == 0.0 or node.running_by_class is None:
        return math.nan
    before = _decode_s(node.name, law, sequences, tokens - float(view.request.prompt_tokens))
    harm = 0.0
    for running, limits in zip(node.running_by_class, policy.classes, strict=True):
        if running > 0.0:
            target, table = limits.tpot_target_s, policy.risk_tpot
            harm += running * _at_least_zero(met(target, before, table) - met(target, after, table))
    return harm


def _reservation_s(view: RouterView, node: DecodeView, free: float, policy: Policy) -> float:
    room = free + known(node.reclaimable_blocks) - known(node.queued_blocks)
    missing = float(blocks_of(view.request.prompt_tokens, view.block_tokens)) - room
    if missing <= 0.0:
        return 0.0
    rate = known(node.release_blocks_per_s) - known(node.growth_blocks_per_s)
    wait = missing / (policy.release_floor if rate < policy.release_floor else rate)
    return policy.wait_cap_s if policy.wait_cap_s < wait else wait


def _share(
    view: RouterView, pair: tuple[PrefillView, DecodeView], sent: float, received: float, law: TransferLaw
) -> float:
    prefill, decode = pair
    share = sent
    if prefill.rack != decode.rack:
        for link in view.uplinks:
            if link.from_rack == prefill.rack and link.to_rack == decode.rack:
                share = _least(share, _one_more(link.bytes_per_s * law.port(link.name), link.flows, law))
                break
    return _least(share, received)


def _one_more(speed: float, flows: float | None, law: TransferLaw) -> float:
    """What a port or uplink leaves to one more transfer."""
    return speed if law.contention == "none" else speed / (1.0 + known(flows))


def _exposed_s(
    view: RouterView,
    pair: tuple[PrefillView, DecodeView],
    resident: int,
    share: float,
    compute_s: float,
    law: TransferLaw,
) -> float:
    path = "local" if pair[0].rack == pair[1].rack else "cross"
    size = float(view.request.prompt_tokens - resident) * float(view.kv_bytes_per_token)
    blocks = blocks_of(view.request.prompt_tokens, view.block_tokens) - resident // view.block_tokens
    return law.exposed_s(path, size, share, compute_s, float(blocks))


def _pressure(node: DecodeView, blocks: tuple[float, float], delta: float, high_water: float) -> float:
    estimated, committed = blocks
    net = known(node.growth_blocks_per_s) - known(node.release_blocks_per_s)
    alone = estimated / node.usable_blocks
    projected = (committed + estimated + net * delta) / node.usable_blocks
    above = _at_least_zero((alone if projected < alone else projected) - high_water) / (1.0 - high_water)
    return above * above


def _at_least_zero(value: float) -> float:
    return 0.0 if value < 0.0 else value


def _least(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    return b if b < a else a
