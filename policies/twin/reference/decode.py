"""The D node of the plain reference: block-exact continuous batching with preemption. Rules: docs/twin.md."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque

from models.portable.estimators import Estimators
from policies.twin.cluster import Discipline, Node
from policies.twin.itl import bin_of
from policies.twin.outcomes import NOT_YET, Noise, Status
from policies.twin.reference.admission import Admission
from policies.twin.reference.decode_memory import DecodeMemory
from policies.twin.reference.decode_state import Boundary, DecodeState
from policies.twin.reference.request import DECODE_NOISE, Request, blocks_for, duration_ns, multiplier


class DecodeNode(ABC):
    """What both kinds of D do. `boundary_ns` is the time of its next boundary, None = idle and nothing to do."""

    def __init__(
        self,
        index: int,
        node: Node,
        block_tokens: int,
        discipline: Discipline,
        laws: Estimators,
        seed: int,
        noise: Noise | None,
        swap_s_per_token: float = 0.0,
    ) -> None:
        self.index = index
        self.name = node.name
        self.capacity = node.blocks
        self.block_tokens = block_tokens
        self.discipline = discipline
        self.laws = laws
        self.seed = seed
        self.noise_table = None if noise is None else noise.decode
        self.admission = Admission(discipline, node.blocks, block_tokens)
        self.memory = DecodeMemory(
            node.blocks,
            block_tokens,
            share=discipline.share_prompt_blocks,
            retain=discipline.share_prompt_blocks and discipline.in_steps,
        )

        self.running: list[Request] = []  # in the order in which they joined
        self.queue: deque[Request] = deque()  # prompts that wait for a reservation
        self.receiving: list[Request] = []  # reserved, KV under way
        self.landed: deque[Request] = deque()
        self.waiting: list[Request] = []  # preempted ones, and where D reserves first also activated ones

        self.boundary_ns: int | None = None
        self.in_step = False
        self.steps_finished = 0
        self.reservations = 0
        self.preemptions = 0
        self.failed = 0
        self.swapped_tokens = 0
        self.swap_tokens = 0  # of this boundary
        self.swap_s_per_token = swap_s_per_token
        self.generated_tokens = 0
        self.gaps: Counter[tuple[int, int]] = Counter()  # (class, bin of policies.twin.itl)
        self.freed_blocks = 0

    @property
    def batch(self) -> list[Request]:
        """Those of the running that make a token in a step now."""
        return [r for r in self.running if r.rest_tokens == 0 and not r.stalled]

    @property
    def preempted(self) -> list[Request]:
        """Those of the waiting that were preempted."""
        return [r for r in self.waiting if not self.memory.held(r)]

    @property
    def reserved(self) -> list[Request]:
        """Those whose blocks are reserved and that do not run yet."""
        return [*self.receiving, *self.landed, *(r for r in self.waiting if self.memory.held(r))]

    def held_tokens(self, request: Request) -> int:
        """Tokens of a request's prompt whose KV is here, in leading full blocks."""
        full = request.prompt_tokens // self.block_tokens
        return self.memory.leading(request, full, active=False) * self.block_tokens

    def wake(self, now: int) -> None:
        """There is work: an idle node has a boundary now."""
        if not self.in_step:
            self.boundary_ns = now

    def join(self, request: Request, now: int) -> None:
        """A prompt was handed off."""
        self.admission.next_stage(request)
        self.queue.append(request)
        self.wake(now)

    def land(self, request: Request, now: int) -> None:
        """A prompt's KV is visible."""
        self.receiving.remove(request)
        self.landed.append(request)
        self.wake(now)

    def drop(self, request: Request, now: int) -> None:
        """The request is over: what it holds here is free now. A step that loses its last sequence is broken off."""
        if request in self.running:
            self._leave(request)
            self.in_step = self.in_step and bool(self.batch)
        elif request in self.queue:
            self.queue.remove(request)
        else:
            if self.memory.held(request):
                there = self.block_tokens * len(request.shared_on_d)
                self.memory.release(request, there if request.activated_ns == NOT_YET else request.prompt_tokens)
            for where in (self.waiting, self.receiving, self.landed):
                if request in where:
                    where.remove(request)
        self.wake(now)

    def boundary(self, now: int) -> Boundary:
        """Do everything that happens between two steps."""
        result = Boundary()
        self.swap_tokens = 0
        self._end_step(now)
        if self.admission.staged:
            self._next_stages()
        failed = self.failed
        extra_s = self._between_steps(result, now)
        extra_s += self.swap_tokens * self.swap_s_per_token
        self.swapped_tokens += self.swap_tokens
        if self.batch:
            noise = multiplier(self.noise_table, self.seed, DECODE_NOISE, self.index, self.steps_finished)
            tokens = sum(r.context_tokens for r in self.batch)
            seconds = self.laws.decode.decode_s(self.name, len(self.batch), tokens) * noise + extra_s
            self.in_step = True
            self.boundary_ns = now + duration_ns(seconds)
        elif self.failed > failed and self.memory.used == 0 and (self.queue or self.waiting):
            self.boundary_ns = now  # its place is free, and nothing else would wake the node
        else:
            self.boundary_ns = None
        return result

    @abstractmethod
    def _between_steps(self, result: Boundary, now: int) -> float:
        """Readmit, activate, reserve, grow in the order of this kind. Returns the seconds added to the next step."""

    def _end_step(self, now: int) -> None:
        if not self.in_step:
            return
        self.in_step = False
        self.steps_finished += 1
        made = self.batch
        for request in made:
            request.tokens_made += 1
            self.generated_tokens += 1
            if request.tokens_made == 1:
                request.first_token_ns = now
            else:
                self.gaps[request.class_index, bin_of(now - request.last_token_ns)] += 1
            request.last_token_ns = now
        # All who finish have this step as their target step; they go by number, which orders what is retained.
        for request in sorted((r for r in made if r.tokens_made == r.output_tokens), key=lambda r: r.index):
            request.finished_ns = now
            request.status = Status.COMPLETED
            self._leave(request)

    def _leave(self, request: Request) -> None:
        computed = max(request.prompt_tokens, request.context_tokens - self.discipline.growth_lag)
        if request.rest_tokens > 0:
            computed = request.context_tokens - request.rest_tokens
        self.running.remove(request)
        self.freed_blocks += self.memory.release(request, computed)
        request.rest_tokens = 0
        request.stalled = False

    def _run(self, request: Request) -> float:
        """A waiting sequence runs. Returns the seconds that this adds to the next step."""
        self.waiting.remove(request)
        self.running.append(request)
        if self.memory.held(request):
            return 0.0
        self.memory.refer(request, self.memory.leading(request, self._matchable(request), active=True))
        self.memory.hold(request, request.context_tokens)
        if self.discipline.preemption == "swap":
            self._swap(request)
            return 0.0
        return self.laws.prefill.prefill_s(self.name, request.context_tokens, 0.0)

    def _preempt(self, request: Request) -> None:
        """It has left and waits until it may run again."""
        self.admission.next_stage(request)
        last = self.discipline.readmission == "first_preempted"
        self.waiting.insert(len(self.waiting) if last else 0, request)
        self._swap(request)
        request.preemptions += 1
        self.preemptions += 1

    def _swap(self, request: Request) -> None:
        if self.discipline.preemption == "swap":
            self.swap_tokens += request.context_tokens

    def _matchable(self, request: Request) -> int:
        """Full blocks of which all but the last token's may be there already."""
        return (request.context_tokens - 1) // self.block_tokens

    def _fits(self, request: Request) -> bool:
        """A preempted sequence has room for all of its context, and in stages for what it books."""
        if self.admission.staged and not self._books(request):
            return False
        return self.memory.need(request, request.context_tokens, self._matchable(request)) <= self.memory.free

    def _reserve(self, result: Boundary, now: int) -> None:
        per_boundary = self.discipline.reservations_per_boundary
        limited = per_boundary != 0 and len(self.running) > 0
        while self.queue:
            if limited and len(result.reserved) == per_boundary + len(result.activated):
                return
            request = self.queue[0]
            full = request.prompt_tokens // self.block_tokens
            before = self.memory.used
            kept_free = self.discipline.admission_reserve_blocks if before > 0 else 0
            if self.memory.need(request, request.context_tokens, full) + kept_free > self.memory.free:
                return
            if self.discipline.admission != "blocks" and not self._books(request):
                return
            self.queue.popleft()
            self.memory.refer(request, self.memory.leading(request, full, active=False))
            self.memory.hold(request, request.context_tokens, computed=False)
            request.reserved_blocks = self.memory.used - before
            request.reservation = self.reservations
            self.reservations += 1
            request.transfer_started_ns = now
            self.receiving.append(request)
            result.reserved.append(request)

    def _books(self, request: Request) -> bool:
        return self.admission.fits(request, [*self.running, *self.reserved])

    def _next_stages(self) -> None:
        """Sequences at the end of their stage are admitted once more, or are preempted."""
        for request in [r for r in self.batch if r.tokens_made == r.stage_end]:
            self.admission.next_stage(request)
            if not self._books(request):
                self._leave(request)
                self._preempt(request)

    def _wanted(self) -> list[tuple[Request, int]]:
        """What grows, and the tokens that it then holds."""
        return [(r, r.context_tokens + 1 - self.discipline.growth_lag) for r in self.batch]

    def _grow(self) -> bool:
        """Blocks for what the next step computes; the youngest make room if there are not enough. Whether some did."""
        preempted = False
        while True:
            wanted = self._wanted()
            lacking = sum(max(0, blocks_for(n, self.block_tokens) - self.memory.held(r)) for r, n in wanted)
            if lacking <= self.memory.free:
                break
            youngest = self.running[-1]
            alone = len(self.running) == 1 and not self.reserved
            self._leave(youngest)
            if alone:
                youngest.status = Status.FAILED
                self.failed += 1
            else:
                self._preempt(youngest)
                preempted = True
        for request, tokens in wanted:
            self.memory.hold(request, tokens)
            if request.rest_tokens > 0:
                request.rest_tokens = request.context_tokens - tokens
        return preempted

    def observe(self) -> DecodeState:
        """The node as a sample shows it."""
        inflight = sum(r.reserved_blocks for r in self.reserved)
        queued = sum(blocks_for(r.prompt_tokens, self.block_tokens) for r in self.queue)
        queued += sum(blocks_for(r.context_tokens, self.block_tokens) for r in self.preempted)
        return DecodeState(
            active_blocks=self.memory.used - inflight,
            inflight_blocks=inflight,
            queued_blocks=queued,
            running_requests=len(self.batch),
            running_tokens=sum(r.context_tokens for r in self.batch),
            receiving_requests=len(self.reserved),
            receiving_tokens=sum(r.prompt_tokens for r in self.reserved),
            generated_tokens=self.generated_tokens,
            freed_blocks=self.freed_blocks,
            running_classes=tuple(r.class_index for r in self.batch),
            waiting_requests=len(self.queue) + len(self.preempted),
        )
