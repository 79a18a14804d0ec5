"""The P node of the plain reference: token budget, chunks, LRU prefix cache with pinning. Rules: docs/twin.md."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass

from models.portable.estimators import Estimators
from policies.twin.cluster import Discipline, Node
from policies.twin.outcomes import Noise
from policies.twin.reference.request import PREFILL_NOISE, Request, blocks_for, duration_ns, multiplier


@dataclass(frozen=True, slots=True)
class PrefillState:
    """What a sample shows of a P node."""

    backlog_tokens: int
    backlog_requests: int
    available_blocks: int
    sending_requests: int


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
        self.seed = seed
        self.noise_table = None if noise is None else noise.prefill

        self.references: dict[int, int] = {}  # resident block -> how many prompts hold it
        self.unpinned: OrderedDict[int, None] = OrderedDict()  # resident blocks that nobody holds, head = evicted first
        self.anonymous_blocks = 0
        self.queue: deque[Request] = deque()
        self.running: list[Request] = []
        self.waiting_releases: list[Request] = []
        self.backlog_tokens = 0
        self.backlog_requests = 0

        self.boundary_ns: int | None = None
        self.step_tokens: int | None = None  # new tokens of the step under way
        self.steps_finished = 0
        self.evictions = 0
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

    def join(self, request: Request, now: int) -> None:
        """A placed request joins the queue."""
        self.queue.append(request)
        self.backlog_tokens += request.expected_new_tokens
        self.backlog_requests += 1
        self.wake(now)

    def release(self, request: Request, now: int) -> None:
        """D does not need the prompt's KV here any longer; its blocks are freed at the next boundary."""
        self.waiting_releases.append(request)
        self.wake(now)

    def boundary(self, now: int) -> list[Request]:
        """Do everything that happens between two steps; returns the prompts that were handed off, in order."""
        handed_off = self._end_step(now)
        for request in self.waiting_releases:
            self._free(request)
        self.waiting_releases = []
        new_tokens, chunk_context, prompts = self._schedule(now)
        if new_tokens > 0:
            noise = multiplier(self.noise_table, self.seed, PREFILL_NOISE, self.index, self.steps_finished)
            seconds = self.law.prefill_s(self.name, new_tokens, chunk_context, prompts) * noise
            self.step_tokens = new_tokens
            self.boundary_ns = now + duration_ns(seconds)
        else:
            self.boundary_ns = None
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

    def _free(self, request: Request) -> None:
        self.anonymous_blocks -= request.anonymous_blocks
        request.anonymous_blocks = 0
        for block in reversed(request.references):
            self.references[block] -= 1
            if self.references[block] == 0:
                self.unpinned[block] = None  # to the tail
        request.references = []
        while self.unpinned and self.pinned + len(self.unpinned) > self.cache_blocks:
            self._evict()

    def _evict(self) -> None:
        evicted, _ = self.unpinned.popitem(last=False)
        del self.references[evicted]
        self.evictions += 1

    def _schedule(self, now: int) -> tuple[int, int, int]:
        """Fill one step. Returns its new tokens T, K = sum of chunk · tokens before the chunk, and its prompts."""
        budget = self.discipline.chunk_tokens
        new_tokens = 0
        chunk_context = 0
        prompts = 0

        for request in self.running:
            if budget == 0:
                return new_tokens, chunk_context, prompts
            chunk = min(budget, request.prompt_tokens - request.tokens_done)
            if self._missing_blocks(request, chunk) > self.capacity - self.pinned:
                self.blocked += 1
                return new_tokens, chunk_context, prompts
            chunk_context += chunk * request.tokens_done
            new_tokens += chunk
            budget -= chunk
            prompts += 1
            self._compute(request, chunk)

        while self.queue and budget > 0 and len(self.running) < self.discipline.prefill_max_seqs:
            request = self.queue[0]
            match = self.matched_blocks(request)
            cached_tokens = match * self.block_tokens
            chunk = min(budget, request.prompt_tokens - cached_tokens)
            new_blocks = blocks_for(cached_tokens + chunk, self.block_tokens) - match
            matched_unpinned = sum(1 for block in request.hashes[:match] if block in self.unpinned)
            if new_blocks + matched_unpinned > self.capacity - self.pinned:
                self.blocked += 1
                return new_tokens, chunk_context, prompts
            self.queue.popleft()
            self._admit(request, match, now)
            self.running.append(request)
            chunk_context += chunk * request.tokens_done
            new_tokens += chunk
            budget -= chunk
            prompts += 1
            self._compute(request, chunk)

        return new_tokens, chunk_context, prompts

    def _admit(self, request: Request, match: int, now: int) -> None:
        for block in request.hashes[:match]:
            self._refer(block, request)
        request.cached_tokens = match * self.block_tokens
        request.tokens_done = request.cached_tokens
        request.prefill_started_ns = now
        self.backlog_tokens += (request.prompt_tokens - request.cached_tokens) - request.expected_new_tokens
        self.hit_blocks += match

    def _missing_blocks(self, request: Request, chunk: int) -> int:
        held = len(request.references) + request.anonymous_blocks
        return blocks_for(request.tokens_done + chunk, self.block_tokens) - held

    def _compute(self, request: Request, chunk: int) -> None:
        """Take the chunk's blocks, then register the full blocks that it completes."""
        for _ in range(self._missing_blocks(request, chunk)):
            if self.unpinned and self.pinned + len(self.unpinned) >= self.cache_blocks:
                self._evict()
            self.anonymous_blocks += 1
            request.anonymous_blocks += 1
        first_incomplete = request.tokens_done // self.block_tokens
        request.tokens_done += chunk
        for block in request.hashes[first_incomplete : request.tokens_done // self.block_tokens]:
            # The prompt's own copy becomes the resident one, or is given back for the one that is resident already.
            self.anonymous_blocks -= 1
            request.anonymous_blocks -= 1
            self._refer(block, request)

    def _refer(self, block: int, request: Request) -> None:
        self.references[block] = self.references.get(block, 0) + 1
        self.unpinned.pop(block, None)
        request.references.append(block)
