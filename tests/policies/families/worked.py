"""A small view with round numbers: two P, two D, nothing waiting, a prompt of 1,024 tokens in blocks of 128."""

from __future__ import annotations

from dataclasses import replace

from policies.view import DecodeView, PrefillView, RequestView, RouterView


def p(**changes) -> PrefillView:
    base = PrefillView(
        name="p",
        rack=0,
        accepting=True,
        compatible=True,
        total_blocks=100,
        port_bytes_per_s=1e9,
        hit_tokens=0,
        backlog_tokens=0.0,
        backlog_requests=0.0,
        available_blocks=100.0,
        sending_requests=0.0,
        age_s=0.0,
        waiting_requests=0.0,
        running_requests=0.0,
    )
    return replace(base, **changes)


def d(**changes) -> DecodeView:
    base = DecodeView(
        name="d",
        rack=0,
        accepting=True,
        compatible=True,
        port_bytes_per_s=1e9,
        resident_tokens=0,
        usable_blocks=100.0,
        active_blocks=0.0,
        reserved_blocks=0.0,
        inflight_blocks=0.0,
        reclaimable_blocks=0.0,
        booked_blocks=0.0,
        queued_blocks=0.0,
        running_requests=0.0,
        running_tokens=0.0,
        receiving_requests=0.0,
        receiving_tokens=0.0,
        booked_requests=0.0,
        booked_tokens=0.0,
        growth_blocks_per_s=0.0,
        release_blocks_per_s=0.0,
        age_s=0.0,
        waiting_requests=0.0,
        own_blocks=0.0,
        new_blocks=8.0,
    )
    return replace(base, **changes)


def view(prefill: list[PrefillView], decode: list[DecodeView], *, seed: int = 1, turn: int = 0) -> RouterView:
    return RouterView(
        request=RequestView(1024, 128, 64, 0, 0.0, seed),
        prefill=tuple(prefill),
        decode=tuple(decode),
        uplinks=(),
        block_tokens=128,
        kv_bytes_per_token=1000,
        chunk_tokens=2048,
        turn=turn,
    )
