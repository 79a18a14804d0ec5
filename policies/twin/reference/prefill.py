"""The P node of the plain reference: token budget, chunks, LRU prefix cache with pinning. Rules: docs/twin.md."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from models.portable.estimators import Estimators
from policies.twin.cluster import Discipline, Node
from policies.twin.outcomes import Noise
from policies.twin.reference.request import PREFILL_NOISE, Request, blocks_for, duration_ns, multiplier
from policies.twin.reference.signals import CacheSignals


@dataclass(frozen=True, slots=True)
class PrefillState:
    """What a sample shows of a P node."""

    backlog_tokens: int
    backlog_requests: int
    available_blocks: int
    sending_requests: int
    waiting_requests: int
    running_requests: int


class Chunk(NamedTuple):
    """A prompt's part in a step: its tokens, and the prompt's tokens before them."""

    tokens: int
    before: int


class PrefillNode:
    """One P. `boundary_ns` is the time of its next boundary, None = idle and nothing to do."""

    def __init__(
        self,
        index: int,
        node: Node,
        block_tokens: int,
        discipline: Discipline,
        laws: Estimators,
        seed: int,
        noise: Noise | None,
        signals: CacheSignals,
    ) -> None:
        self.index = index
        self.name = node.name
        self.capacity = node.blocks
        self.block_tokens = block_tokens
        self.discipline = discipline
        self.law = laws.prefill
        cache = laws.cache.get(node.name)
        # Blocks, pinned ones among them, up to which unpinned blocks stay.
        self.cache_blocks = node.blocks if cache is None else min(node.blocks, math.floor(cache.capacity_blocks))
        ttl_s = None if cache is None else cache.ttl_s
        self.ttl_ns = None if ttl_s is None else duration_ns(ttl_s)
        self.seed = seed
        self.signals = signals
        self.noise_table = None if noise is None else noise.prefill

        self.references: dict[int, int] = {}  # resident block -> how many prompts hold it
        # Resident blocks that nobody holds, and since when; head = evicted first.
        self.unpinned: OrderedDict[int, int] = OrderedDict()
        self.anonymous_blocks = 0
        self.queue: list[Request] = []
        self.running: list[Request] = []
        self.waiting_releases: list[Request] = []
        self.backlog_tokens = 0
        self.backlog_requests = 0

        self.boundary_ns: int | None = None
        self.step_tokens: int | None = None  # new tokens of the step under way
        self.steps_finished = 0
        self.evictions = 0
        self.timed_out = 0
        self.hit_blocks = 0
        self.blocked = 0

    @property
    def pinned(self) -> int:
        """Blocks that somebody holds."""
        return self.anonymous_blocks + len(self.references) - len(self.unpinned)

    def wake(self, now: int) -> None:
        """There is work: an idle node has a boundary now."""
        if self.step_tokens is None:
            self.boundary_ns = now

    def matched_blocks(self, request: Request) -> int:
        """Longest run of resident blocks from the prompt's start; at least one token is always computed."""
        match = 0
        for block in request.hashes[: (request.prompt_tokens - 1) // self.block_tokens]:
            if block not in self.references:
                break
            match += 1
        return match

    def _rank(self, request: Request) -> int:
        return request.priority if self.discipline.queue_order == "priority" else 0

    def join(self, request: Request, now: int) -> None:
        """A placed request joins the queue."""
        self.queue.append(request)
        self.backlog_tokens += request.expected_new_tokens
        self.backlog_requests += 1
        self.wake(now)

    def release(self, request: Request, now: int) -> None:
        """D does not need the prompt's KV here any longer; its blocks are freed at the next boundary."""
        request.released = True
        self.waiting_releases.append(request)
        self.wake(now)

    def drop(self, request: Request, now: int) -> None:
        """The request, which was not released, is over: what it holds here is free now."""
        if request in self.queue:
            self.queue.remove(request)
            self.backlog_tokens -= request.expected_new_tokens
            self.backlog_requests -= 1
        else:
            if request in self.running:
                self.running.remove(request)
                self.backlog_tokens -= request.prompt_tokens - request.tokens_done
                self.backlog_requests -= 1
            self._free(request, now)
            request.released_ns = now
        self.wake(now)

    def boundary(self, now: int) -> list[Request]:
        """Do everything that happens between two steps; returns the prompts that were handed off, in order."""
        handed_off = self._end_step(now)
        self._release(now)
        self._time_out(now)
        chunks = self._schedule(now)
        if chunks:
            noise = multiplier(self.noise_table, self.seed, PREFILL_NOISE, self.index, self.steps_finished)
            seconds = self._step_s(chunks) * noise
            self.step_tokens = sum(chunk.tokens for chunk in chunks)
            self.boundary_ns = now + duration_ns(seconds)
        else:
            self.boundary_ns = self._next_time_out()
        return handed_off

    def _end_step(self, now: int) -> list[Request]:
        if self.step_tokens is None:
            return []
        self.backlog_tokens -= self.step_tokens
        self.step_tokens = None
        self.steps_finished += 1
        whole = [r for r in self.running if r.tokens_done == r.prompt_tokens]
        self.running = [r for r in self.running if r.tokens_done < r.prompt_tokens]
        for request in whole:
            request.prefill_finished_ns = now
            self.backlog_requests -= 1
        return whole

    def _release(self, now: int) -> None:
        for request in self.waiting_releases:
            self._free(request, now)
            request.released_ns = now
        self.waiting_releases = []

    def _free(self, request: Request, now: int) -> None:
        self.anonymous_blocks -= request.anonymous_blocks
        request.anonymous_blocks = 0
        for block in reversed(request.references):
            self.references[block] -= 1
            if self.references[block] == 0:
                self.unpinned[block] = now  # to the tail
        request.references = []
        while self.unpinned and self.pinned + len(self.unpinned) > self.cache_blocks:
            self._evict(now)

    def _evict(self, now: int) -> None:
        self._forget_oldest(now)
        self.evictions += 1

    def _forget_oldest(self, now: int) -> None:
        gone, _ = self.unpinned.popitem(last=False)
        del self.references[gone]
        self.signals.changed(self.index, gone, False, now)

    def _next_time_out(self) -> int | None:
        if self.ttl_ns is None or not self.unpinned:
            return None
        return next(iter(self.unpinned.values())) + self.ttl_ns

    def _time_out(self, now: int) -> None:
        while (until := self._next_time_out()) is not None and until <= now:
            self._forget_oldest(now)
            self.timed_out += 1

    def restart(self, now: int) -> None:
        """The node, which no request waits for or runs on any more, loses its step and all that it has cached."""
        self.backlog_tokens -= self.step_tokens or 0
        self.step_tokens = None
        self.boundary_ns = None
        self._release(now)
        while self.unpinned:
            self._forget_oldest(now)

    def _step_s(self, chunks: list[Chunk]) -> float:
        """Seconds that the step takes, without noise."""
        new_tokens = sum(chunk.tokens for chunk in chunks)
        if self.discipline.step_tokens == "mean":
            start = sum(chunk.before for chunk in chunks)
            new_tokens = len(chunks) * ((start + new_tokens) // len(chunks) - start // len(chunks))
        chunk_context = sum(chunk.tokens * chunk.before for chunk in chunks)
        return self.law.prefill_s(self.name, new_tokens, chunk_context, len(chunks))

    def _schedule(self, now: int) -> list[Chunk]:
        """Fill one step."""
        chunks: list[Chunk] = []
        budget = self.discipline.chunk_tokens

        for request in self.running:
            if budget == 0:
                return chunks
            chunk = min(budget, request.prompt_tokens - request.tokens_done)
            if self._missing_blocks(request, chunk) > self.capacity - self.pinned:
                self.blocked += 1
                return chunks
            chunks.append(Chunk(chunk, request.tokens_done))
            budget -= chunk
            self._compute(request, chunk, now)

        while self.queue and budget > 0 and len(self.running) < self.discipline.prefill_max_seqs:
            # The first of those with the lowest priority.
            request = min(self.queue, key=self._rank)
            match = self.matched_blocks(request)
            cached_tokens = match * self.block_tokens
            chunk = min(budget, request.prompt_tokens - cached_tokens)
            new_blocks = blocks_for(cached_tokens + chunk, self.block_tokens) - match
            matched_unpinned = sum(1 for block in request.hashes[:match] if block in self.unpinned)
            if new_blocks + matched_unpinned > self.capacity - self.pinned:
                self.blocked += 1
                return chunks
            self.queue.remove(request)
            self._admit(request, match, now)
            self.running.append(request)
            chunks.append(Chunk(chunk, request.tokens_done))
            budget -= chunk
            self._compute(request, chunk, now)

        return chunks

    def _admit(self, request: Request, match: int, now: int) -> None:
        for block in request.hashes[:match]:
            self._refer(block, request, now)
        request.cached_tokens = match * self.block_tokens
        request.tokens_done = request.cached_tokens
        request.prefill_started_ns = now
        self.backlog_tokens += (request.prompt_tokens - request.cached_tokens) - request.expected_new_tokens
        self.hit_blocks += match

    def _missing_blocks(self, request: Request, chunk: int) -> int:
        held = len(request.references) + request.anonymous_blocks
        return blocks_for(request.tokens_done + chunk, self.block_tokens) - held

    def _compute(self, request: Request, chunk: int, now: int) -> None:
        """Take the chunk's blocks, then register the full blocks that it completes."""
        for _ in range(self._missing_blocks(request, chunk)):
            if self.unpinned and self.pinned + len(self.unpinned) >= self.cache_blocks:
                self._evict(now)
            self.anonymous_blocks += 1
            request.anonymous_blocks += 1
        first_incomplete = request.tokens_done // self.block_tokens
        request.tokens_done += chunk
        for block in request.hashes[first_incomplete : request.tokens_done // self.block_tokens]:
            # The prompt's own copy becomes the resident one, or is given back for the one that is resident already.
            self.anonymous_blocks -= 1
            request.anonymous_blocks -= 1
            self._refer(block, request, now)

    def _refer(self, block: int, request: Request, now: int) -> None:
        if block not in self.references:
            self.signals.changed(self.index, block, True, now)
        self.references[block] = self.references.get(block, 0) + 1
        self.unpinned.pop(block, None)
        request.references.append(block)
