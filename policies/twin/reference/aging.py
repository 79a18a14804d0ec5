"""What a router of the plain reference expects to have happened since a sample. Rules: docs/twin.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from policies.view import DecodeView


@dataclass(slots=True)
class Backlog:
    """A P's work at `at_ns`, which it does at `pace` tokens a second."""

    tokens: float
    requests: float
    at_ns: int
    pace: float

    def drain(self, until_ns: int) -> None:
        """Let P compute until then."""
        left = max(0.0, self.tokens - self.pace * ((until_ns - self.at_ns) / 1e9))
        if self.tokens > 0:
            self.requests *= left / self.tokens
        self.tokens, self.at_ns = left, until_ns

    def add(self, joins: Iterable[tuple[int, int]]) -> None:
        """Prompts that join, in time order, as (ns, new tokens)."""
        for joined_ns, new_tokens in joins:
            self.drain(joined_ns)
            self.tokens += new_tokens
            self.requests += 1


def brought_up(node: DecodeView, age_s: float, block_tokens: int) -> DecodeView:
    """D as growth and release alone make it in `age_s`: what is freed takes its sequences with it."""
    active, running, tokens = node.active_blocks, node.running_requests, node.running_tokens
    assert active is not None
    assert running is not None
    assert tokens is not None
    growth, release = node.growth_blocks_per_s or 0.0, node.release_blocks_per_s or 0.0
    freed = release * age_s
    share = min(1.0, freed / active) if active > 0 else 0.0
    by_class = node.running_by_class or ()
    return replace(
        node,
        active_blocks=min(node.usable_blocks, max(0.0, active + growth * age_s - freed)),
        running_requests=running - running * share,
        running_tokens=tokens - tokens * share + growth * float(block_tokens) * age_s,
        running_by_class=tuple(count - count * share for count in by_class),
    )
