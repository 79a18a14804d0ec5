"""What the plain reference hands out about a D node."""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.twin.reference.request import Request


@dataclass(frozen=True, slots=True)
class DecodeState:
    """What a sample shows of a D node, and the totals that growth and release are made of."""

    active_blocks: int
    inflight_blocks: int
    queued_blocks: int
    running_requests: int
    running_tokens: int
    receiving_requests: int
    receiving_tokens: int
    generated_tokens: int
    freed_blocks: int
    running_classes: tuple[int, ...]  # class of every running sequence
    waiting_requests: int


@dataclass(slots=True)
class Boundary:
    """What a boundary asks of the rest of the pool, in order."""

    activated: list[Request] = field(default_factory=list)
    reserved: list[Request] = field(default_factory=list)
