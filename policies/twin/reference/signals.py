"""What routers of the plain reference see of the prefix caches. Rules: docs/twin.md, "What a router sees"."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from policies.twin import cluster
from policies.twin.cluster import RouterSetup
from policies.twin.reference.request import CACHE_CHANGE, Request, draw


@dataclass(frozen=True, slots=True)
class Change:
    """A block became resident on a P, or is gone."""

    at_ns: int
    prefill: int
    block: int
    resident: bool


class CacheSignals:
    """The view of all P caches that the routers share, and the changes on their way to it."""

    def __init__(self, setup: RouterSetup, nodes: int, block_tokens: int, seed: int) -> None:
        self.setup = setup
        self.block_tokens = block_tokens
        self.seed = seed
        self.seen: list[set[int]] = [set() for _ in range(nodes)]
        self.changes = [0] * nodes
        self.log: deque[Change] = deque()

    def changed(self, prefill: int, block: int, resident: bool, now: int) -> None:
        """Tell of a change, unless the news is lost."""
        bits = draw(self.seed, CACHE_CHANGE, prefill, self.changes[prefill])
        self.changes[prefill] += 1
        if (bits >> 11) * 2.0**-53 < self.setup.cache_loss_frac:
            return
        if len(self.log) == cluster.CACHE_LOG:
            self._show(self.log.popleft())
        self.log.append(Change(now, prefill, block, resident))

    def hit_tokens(self, request: Request, now: int) -> list[int]:
        """Cached tokens of the prompt on every P, as routers see them."""
        while self.log and self._is_published(self.log[0].at_ns, now):
            self._show(self.log.popleft())
        return [self._seen_blocks(blocks, request) * self.block_tokens for blocks in self.seen]

    def _is_published(self, at_ns: int, now: int) -> bool:
        period, delay = self.setup.cache_period_ns, self.setup.cache_delay_ns
        if period == 0 and delay == 0:
            return True
        published_ns = at_ns if period == 0 else -(-at_ns // period) * period
        return published_ns + delay < now

    def _show(self, change: Change) -> None:
        if change.resident:
            self.seen[change.prefill].add(change.block)
        else:
            self.seen[change.prefill].discard(change.block)

    def _seen_blocks(self, blocks: set[int], request: Request) -> int:
        hit = 0
        for block in request.hashes[: (request.prompt_tokens - 1) // self.block_tokens]:
            if block not in blocks:
                break
            hit += 1
        return hit
