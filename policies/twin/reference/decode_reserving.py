"""The D node that reserves before it lets sequences run, and computes preempted ones again in steps: docs/twin.md."""

from __future__ import annotations

from policies.twin.reference.decode import DecodeNode
from policies.twin.reference.decode_state import Boundary
from policies.twin.reference.request import Request


class ReservingNode(DecodeNode):
    """One D with `boundary_order = "reserve_first"`."""

    def _between_steps(self, result: Boundary, now: int) -> float:
        for request in self.landed:
            request.activated_ns = now
            self.memory.register(request, request.prompt_tokens)
            result.activated.append(request)
            later = [k for k, other in enumerate(self.waiting) if other.reservation > request.reservation]
            self.waiting.insert(later[0] if later else len(self.waiting), request)
        self.landed.clear()
        self._reserve(result, now)
        extra_s = 0.0
        while True:
            budget = self._plan()
            preempted = self._grow()
            if not preempted:
                extra_s += self._let_run(budget)
            if self.batch or not (self.running or preempted):
                return extra_s

    def _plan(self) -> int:
        """What each running sequence computes next. Returns what is left of the token budget."""
        budget = self.discipline.chunk_tokens
        computing = False
        for request in self.running:
            request.stalled = computing and budget == 0
            request.chunk_tokens = min(budget, request.rest_tokens)
            computing = computing or request.rest_tokens > 0
            if not request.stalled:
                budget = max(0, budget - (request.chunk_tokens if request.rest_tokens > 0 else 1))
        return budget

    def _wanted(self) -> list[tuple[Request, int]]:
        computed = [(r, r.context_tokens - r.rest_tokens + r.chunk_tokens) for r in self.running if r.rest_tokens > 0]
        return super()._wanted() + computed

    def _next(self) -> Request | None:
        """The waiting sequence that runs next, if one may."""
        activated = [r for r in self.waiting if self.memory.held(r)]
        first = activated[0] if activated else None
        if self.queue:
            return first
        front = self.waiting[0]
        if self.memory.held(front) or self._fits(front):
            return front
        return None if self.running else first

    def _let_run(self, budget: int) -> float:
        extra_s = 0.0
        while self.waiting and len(self.running) < self.discipline.decode_max_seqs and (request := self._next()):
            activated = self.memory.held(request) > 0
            if activated or not self.discipline.in_steps:
                extra_s += self._run(request)
                if activated and budget == 0:
                    break
            elif budget > 0:
                budget -= self._compute_again(request, budget)
            else:
                break
        return extra_s

    def _compute_again(self, request: Request, budget: int) -> int:
        """A preempted sequence begins with what is still there and computes a first chunk. Returns its tokens."""
        self.waiting.remove(request)
        self.running.append(request)
        there = self.memory.leading(request, self._matchable(request), active=False)
        self.memory.refer(request, there)
        computed = there * self.block_tokens
        chunk = min(budget, request.context_tokens - computed)
        self.memory.hold(request, computed + chunk)
        request.rest_tokens = request.context_tokens - computed - chunk
        return chunk
