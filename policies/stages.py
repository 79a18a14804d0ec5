"""Predicted TTFT by walking a request through its stages.

On its own on purpose: it shares the laws with `policies.terms`, and nothing else. With the weights 1, 1, 1, 1, 0, 0, 1,
0, 0 the score of a pair must equal it (docs/decision.md).
"""

from __future__ import annotations

from models.portable.estimators import Estimators
from models.portable.transfer import egress, ingress
from policies.policy import Policy
from policies.view import DecodeView, PrefillView, RouterView


def predict_ttft(policy: Policy, estimators: Estimators, view: RouterView, prefill: int, decode: int) -> float | None:
    """Seconds from the decision to the first token on the pair of node indices; None if something needed is unknown."""
    p, d = view.prefill[prefill], view.decode[decode]
    computed = view.request.prefilled_on is not None
    before = 0.0 if computed else _until_prompt_starts(estimators, view, p)
    reservation = _until_reserved(policy, view, d)
    after = _until_first_token(estimators, view, d)
    cold = _until_visible(estimators, view, (p, d), cached=0, resident=0)
    warm = _until_visible(estimators, view, (p, d), cached=p.hit_tokens, resident=d.resident_tokens)
    if before is None or reservation is None or after is None or cold is None or warm is None:
        return None
    return before + min(cold, warm) + reservation + after


def _until_prompt_starts(estimators: Estimators, view: RouterView, p: PrefillView) -> float | None:
    """The backlog step by step, then the wait for blocks that unsent KV holds."""
    if p.backlog_tokens is None or p.available_blocks is None:
        return None
    clock, left, steps = 0.0, p.backlog_tokens, 0
    while left > 0:
        tokens = min(left, view.chunk_tokens)
        prompts = 1.0 if p.backlog_requests is None else max(1.0, p.backlog_requests * tokens / p.backlog_tokens)
        clock += estimators.prefill.prefill_s(p.name, tokens, 0.0, prompts)
        if steps and tokens < view.chunk_tokens:
            # This step has room for the prompt: its fixed cost is the prompt's own.
            clock -= estimators.prefill.prefill_s(p.name, 0.0, 0.0, 0.0)
        left -= tokens
        steps += 1
    if steps:
        if p.age_s is None:
            return None
        clock = max(clock - p.age_s, 0.0)
    need = -(-view.request.prompt_tokens // view.block_tokens) - p.hit_tokens / view.block_tokens
    bytes_to_leave = max(need - p.available_blocks, 0.0) * view.block_tokens * view.kv_bytes_per_token
    law = estimators.transfer
    return clock + bytes_to_leave * law.wire_frac / (p.port_bytes_per_s * law.port(egress(p.name)))


def _until_visible(
    estimators: Estimators, view: RouterView, pair: tuple[PrefillView, DecodeView], *, cached: int, resident: int
) -> float | None:
    """Own chunks on P, then the transfer."""
    p, d = pair
    law = estimators.transfer
    alone = law.contention == "none"
    sending, receiving = (0.0, 0.0) if alone else (p.sending_requests, d.receiving_requests)
    if sending is None or receiving is None:
        return None
    clock, done = 0.0, view.request.prompt_tokens if view.request.prefilled_on is not None else cached
    while done < view.request.prompt_tokens:
        chunk = min(view.chunk_tokens, view.request.prompt_tokens - done)
        clock += estimators.prefill.prefill_s(p.name, chunk, chunk * done)
        done += chunk
    shares = [
        p.port_bytes_per_s * law.port(egress(p.name)) / (sending + 1),
        d.port_bytes_per_s * law.port(ingress(d.name)) / (receiving + 1),
    ]
    if p.rack != d.rack:
        between = [u for u in view.uplinks if (u.from_rack, u.to_rack) == (p.rack, d.rack)]
        shares += [u.bytes_per_s * law.port(u.name) / (1 if alone else u.flows + 1) for u in between]
    path = "cross" if p.rack != d.rack else "local"
    rate = min(shares) * law.efficiency[path]
    size = (view.request.prompt_tokens - resident) * view.kv_bytes_per_token * law.wire_frac
    blocks = -(-view.request.prompt_tokens // view.block_tokens) - resident // view.block_tokens
    setup = law.alpha_s[path] + law.descriptor_s * law.descriptors_per_block * blocks
    # What the prompt's compute covers has left when it ends, but for the last bytes.
    return clock + setup + max(size / rate - law.overlap_frac * clock, law.last_frac * size / rate)


def _until_reserved(policy: Policy, view: RouterView, d: DecodeView) -> float | None:
    held = (d.active_blocks, d.reserved_blocks, d.inflight_blocks, d.queued_blocks)
    if d.reclaimable_blocks is None or any(blocks is None for blocks in held):
        return None
    room = d.usable_blocks + d.reclaimable_blocks - sum(blocks for blocks in held if blocks is not None)
    missing = -(-view.request.prompt_tokens // view.block_tokens) - room
    if missing <= 0:
        return 0.0
    if d.release_blocks_per_s is None or d.growth_blocks_per_s is None:
        return None
    rate = max(d.release_blocks_per_s - d.growth_blocks_per_s, policy.release_floor)
    return min(missing / rate, policy.wait_cap_s)


def _until_first_token(estimators: Estimators, view: RouterView, d: DecodeView) -> float | None:
    """Half of D's running step, then the first step with this request in it."""
    if d.running_requests is None or d.receiving_requests is None:
        return None
    if d.running_tokens is None or d.receiving_tokens is None:
        return None
    clock = 0.0
    if d.running_requests > 0:
        clock += estimators.decode.decode_s(d.name, d.running_requests, d.running_tokens) / 2
    sequences = d.running_requests + d.receiving_requests + d.booked_requests + 1
    tokens = d.running_tokens + d.receiving_tokens + d.booked_tokens + view.request.prompt_tokens
    return clock + estimators.decode.decode_s(d.name, sequences, tokens)
