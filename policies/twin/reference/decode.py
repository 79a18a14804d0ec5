"""The D node of the plain reference: block-exact continuous batching with preemption. Rules: docs/twin.md."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from models.portable.estimators import Estimators
from policies.twin.cluster import Discipline, Node
from policies.twin.outcomes import Noise, Status
from policies.twin.reference.request import DECODE_NOISE, Request, blocks_for, duration_ns, multiplier


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


@dataclass(slots=True)
class Boundary:
    """What a boundary asks of the rest of the pool, in order."""

    activated: list[Request] = field(default_factory=list)
    reserved: list[Request] = field(default_factory=list)


class DecodeNode:
    """One D. `boundary_ns` is the time of its next boundary, None = idle and nothing to do."""

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
        self.laws = laws
        self.seed = seed
        self.noise_table = None if noise is None else noise.decode

        self.running: list[Request] = []  # in the order in which they joined
        self.queue: deque[Request] = deque()  # prompts that wait for a reservation
        self.receiving: list[Request] = []  # reserved, KV under way
        self.landed: deque[Request] = deque()
        self.preempted: deque[Request] = deque()

        self.boundary_ns: int | None = None
        self.in_step = False
        self.steps_finished = 0
        self.preemptions = 0
        self.generated_tokens = 0
        self.freed_blocks = 0

    @property
    def used(self) -> int:
        """Blocks of running, receiving and landed requests."""
        return sum(r.blocks_on_d for r in (*self.running, *self.receiving, *self.landed))

    def wake(self, now: int) -> None:
        """There is work: an idle node has a boundary now."""
        if not self.in_step:
            self.boundary_ns = now

    def join(self, request: Request, now: int) -> None:
        """A prompt was handed off."""
        self.queue.append(request)
        self.wake(now)

    def land(self, request: Request, now: int) -> None:
        """A prompt's KV is visible."""
        self.receiving.remove(request)
        self.landed.append(request)
        self.wake(now)

    def boundary(self, now: int) -> Boundary:
        """Do everything that happens between two steps."""
        result = Boundary()
        self._end_step(now)
        readmission_s = self._readmit()
        self._activate(result, now)
        self._reserve(result, now)
        self._grow()
        if self.running:
            noise = multiplier(self.noise_table, self.seed, DECODE_NOISE, self.index, self.steps_finished)
            tokens = sum(r.context_tokens for r in self.running)
            seconds = self.laws.decode.decode_s(self.name, len(self.running), tokens) * noise + readmission_s
            self.in_step = True
            self.boundary_ns = now + duration_ns(seconds)
        elif self.used == 0 and (self.queue or self.preempted):
            self.boundary_ns = now  # a sequence failed: its place is free, and nothing else would wake the node
        else:
            self.boundary_ns = None
        return result

    def _end_step(self, now: int) -> None:
        if not self.in_step:
            return
        self.in_step = False
        self.steps_finished += 1
        for request in self.running:
            request.tokens_made += 1
            self.generated_tokens += 1
            if request.tokens_made == 1:
                request.first_token_ns = now
        # All who finish have this step as their target step, and nothing depends on their order.
        for request in [r for r in self.running if r.tokens_made == r.output_tokens]:
            request.finished_ns = now
            request.status = Status.COMPLETED
            self._leave(request)

    def _leave(self, request: Request) -> None:
        self.running.remove(request)
        self.freed_blocks += request.blocks_on_d
        request.blocks_on_d = 0

    def _readmit(self) -> float:
        """Let preempted sequences run again. Returns the seconds that their recompute adds to the next step."""
        seconds = 0.0
        while self.preempted and len(self.running) < self.discipline.decode_max_seqs:
            request = self.preempted[0]
            need = blocks_for(request.context_tokens, self.block_tokens)
            if self.used + need > self.capacity:
                break
            self.preempted.popleft()
            request.blocks_on_d = need
            self.running.append(request)
            seconds += self.laws.prefill.prefill_s(self.name, request.context_tokens, 0.0)
        return seconds

    def _activate(self, result: Boundary, now: int) -> None:
        while self.landed and len(self.running) < self.discipline.decode_max_seqs:
            request = self.landed.popleft()
            request.activated_ns = now
            self.running.append(request)
            result.activated.append(request)

    def _reserve(self, result: Boundary, now: int) -> None:
        if self.preempted:
            return
        per_boundary = self.discipline.reservations_per_boundary
        limited = per_boundary != 0 and len(self.running) > 0
        while self.queue:
            if limited and len(result.reserved) == per_boundary + len(result.activated):
                return
            request = self.queue[0]
            need = blocks_for(request.prompt_tokens, self.block_tokens)
            if self.used + need > self.capacity:
                return
            self.queue.popleft()
            request.blocks_on_d = need
            request.transfer_started_ns = now
            self.receiving.append(request)
            result.reserved.append(request)

    def _grow(self) -> None:
        """Blocks for the tokens that the next step makes; the youngest make room if there are not enough."""
        while True:
            growing = [r for r in self.running if r.context_tokens % self.block_tokens == 0]
            if self.used + len(growing) <= self.capacity:
                break
            youngest = self.running[-1]
            if len(self.running) == 1 and self.used == youngest.blocks_on_d:
                youngest.status = Status.FAILED
                self._leave(youngest)
            else:
                self._leave(youngest)
                self.preempted.appendleft(youngest)
                youngest.preemptions += 1
                self.preemptions += 1
        for request in growing:
            request.blocks_on_d += 1

    def observe(self) -> DecodeState:
        """The node as a sample shows it."""
        reserved = [*self.receiving, *self.landed]
        queued = sum(blocks_for(r.prompt_tokens, self.block_tokens) for r in self.queue)
        queued += sum(blocks_for(r.context_tokens, self.block_tokens) for r in self.preempted)
        return DecodeState(
            active_blocks=sum(r.blocks_on_d for r in self.running),
            inflight_blocks=sum(r.blocks_on_d for r in reserved),
            queued_blocks=queued,
            running_requests=len(self.running),
            running_tokens=sum(r.context_tokens for r in self.running),
            receiving_requests=len(reserved),
            receiving_tokens=sum(r.prompt_tokens for r in reserved),
            generated_tokens=self.generated_tokens,
            freed_blocks=self.freed_blocks,
        )
