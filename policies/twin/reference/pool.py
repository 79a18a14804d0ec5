"""The plain reference of the twin: one event after the other, nothing clever.

It implements docs/twin.md apart from the compiled engine; both must agree exactly. Read this to learn how the twin
works, use `policies.twin.replay` to run it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from features.errors import TwinError
from models.portable.estimators import Estimators
from policies.families.registry import decide
from policies.policy import Policy
from policies.twin.cluster import Cluster, swap_s_per_token
from policies.twin.itl import BINS
from policies.twin.outcomes import NOT_YET, Counters, Noise, Replay, Status
from policies.twin.reference.convert import as_replay, requests_of
from policies.twin.reference.decode import DecodeNode
from policies.twin.reference.decode_readmitting import ReadmittingNode
from policies.twin.reference.decode_reserving import ReservingNode
from policies.twin.reference.decode_state import DecodeState
from policies.twin.reference.faults import closed, lose, timeline, too_large
from policies.twin.reference.links import Links
from policies.twin.reference.prefill import PrefillNode, PrefillState
from policies.twin.reference.request import TIE_SEED, Request, draw
from policies.twin.reference.router import Router
from policies.twin.reference.signals import CacheSignals
from policies.twin.workload import Workload
from policies.view import RouterView

Int32 = npt.NDArray[np.int32]

FAULT, ARRIVAL, CANCEL, TRANSFER, PREFILL, DECODE, SAMPLE = 0, 1, 2, 3, 4, 5, 6
"""Kinds of events, in their order at one instant."""

Event = tuple[int, int, int]
"""(time in ns, kind, index of the request, node or router)."""


class Pool:
    """A pool that serves a workload. `step` handles one event."""

    def __init__(
        self,
        cluster: Cluster,
        laws: Estimators,
        policy: Policy,
        requests: list[Request],
        seed: int,
        decision_laws: Estimators,
        noise: Noise | None,
    ) -> None:
        self.cluster = cluster
        self.policy = policy
        self.decision_laws = decision_laws
        self.requests = requests
        self.seed = seed
        block, discipline = cluster.block_tokens, cluster.discipline
        self.signals = CacheSignals(cluster.routers, len(cluster.prefill), block, seed)
        self.prefill = [
            PrefillNode(p, node, block, discipline, laws, seed, noise, self.signals)
            for p, node in enumerate(cluster.prefill)
        ]
        decode_node = ReservingNode if discipline.boundary_order == "reserve_first" else ReadmittingNode
        self.decode: list[DecodeNode] = [
            decode_node(d, node, block, discipline, laws, seed, noise, swap_s_per_token(cluster))
            for d, node in enumerate(cluster.decode)
        ]
        self.links = Links(cluster, laws.transfer, seed, noise)
        self.routers = [Router(r, cluster, policy, decision_laws, seed) for r in range(cluster.routers.count)]
        self.chooses_late = policy.decode_moment in ("handoff", "recheck")
        self.coming = [r for r in requests if r.parent < 0]  # in the order of their arrivals
        self.following = [r for r in requests if r.parent >= 0]  # those whose parent has not ended
        self.placed: list[Request] = []
        self.faults = timeline(cluster.faults)

    def due(self) -> list[Event]:
        """Every event that will happen if nothing comes before it."""
        events: list[Event] = []
        if self.faults:
            events.append((self.faults[0][0], FAULT, 0))
        if self.coming:
            events.append((self.coming[0].arrival_ns, ARRIVAL, self.coming[0].index))
        computing = self.chooses_late and any(p.backlog_requests for p in self.prefill)
        if self.coming or self.following or computing:
            # Samples matter to decisions only, so there are none after the last of them.
            events += [(r.next_tick_ns, SAMPLE, r.index) for r in self.routers if not r.live]
        for request in self.placed:
            if request.patience_ns is not None and request.status is None:
                events.append((request.arrival_ns + request.patience_ns, CANCEL, request.index))
        events += [(time, TRANSFER, index) for time, index in self.links.events()]
        events += [(p.boundary_ns, PREFILL, p.index) for p in self.prefill if p.boundary_ns is not None]
        events += [(d.boundary_ns, DECODE, d.index) for d in self.decode if d.boundary_ns is not None]
        return events

    def step(self, event: Event) -> None:
        """Let one event happen."""
        now, kind, index = event
        if kind == FAULT:
            _, of_link, name = self.faults.pop(0)
            if of_link:
                self.links.change_speeds(name, now)
            else:
                lose(name, now, self.placed, self.prefill, self.decode, self.links, self._drop)
        elif kind == ARRIVAL:
            self._arrive(self.coming.pop(0), now)
        elif kind == CANCEL:
            self._drop(self.requests[index], Status.CANCELLED, now)
        elif kind == TRANSFER:
            self._transfer(index, now)
        elif kind == PREFILL:
            for request in self.prefill[index].boundary(now):
                if self.cluster.discipline.first_on_prefill and self._first_token(request, now):
                    continue
                if self.chooses_late and request.forced is None:
                    self._choose_decode(request, now)
                self.decode[request.decode_node].join(request, now)
                if self.cluster.faults.is_down(self.decode[request.decode_node].name, now):
                    self._drop(request, Status.FAILED, now)
        elif kind == DECODE:
            self._decode_boundary(index, now)
        else:
            self.routers[index].take_sample(now, self._prefill_states(), self._decode_states())
        for request in [r for r in self.following if self.requests[r.parent].status is not None]:
            self.following.remove(request)
            request.arrival_ns = now + request.think_ns
            self.coming.append(request)
        self.coming.sort(key=lambda r: (r.arrival_ns, r.index))

    def _prefill_states(self) -> list[PrefillState]:
        return [
            PrefillState(
                p.backlog_tokens,
                p.backlog_requests,
                p.capacity - p.pinned,
                self.links.sending(p.index),
                len(p.queue),
                len(p.running),
            )
            for p in self.prefill
        ]

    def _decode_states(self) -> list[DecodeState]:
        return [d.observe() for d in self.decode]

    def _arrive(self, request: Request, now: int) -> None:
        if request.patience_ns is not None and request.patience_ns < 0:
            request.status = Status.CANCELLED
            return
        if too_large(request, self.prefill, self.decode, self.cluster.block_tokens):
            request.status = Status.TOO_LARGE
            return
        router = self.routers[request.index % len(self.routers)]
        router.estimate(request, now)
        hit_tokens = self.signals.hit_tokens(request, now)
        pair = request.forced
        on_d = self.policy.decode_moment != "handoff" or request.forced is not None
        nodes = (self.cluster.faults, self.prefill, self.decode)
        if pair is None:
            pair = self._decide(router, request, now, hit_tokens)
            router.chose(request, pair, now)
            if pair is not None and (refused := closed(nodes, pair, on_d, now)):
                router.refused = refused
                pair = self._decide(router, request, now, hit_tokens)
                router.chose(request, pair, now)
                router.refused = set()
        if pair is None or closed(nodes, pair, on_d, now):
            request.status = Status.REJECTED if pair is None else Status.FAILED
            request.predicted_ttft_s = request.predicted_tpot_s = math.nan
            return
        request.prefill_node, request.decode_node = pair
        self.placed.append(request)
        request.expected_new_tokens = request.prompt_tokens - hit_tokens[request.prefill_node]
        router.book(request, now, on_d=on_d)
        self.prefill[request.prefill_node].join(request, now)

    def _choose_decode(self, request: Request, now: int) -> None:
        """The D of a prompt that its P has just computed; without a candidate it stays the one of the arrival."""
        router = self.routers[request.index % len(self.routers)]
        view = self._view(router, request, now, [0] * len(self.prefill), request.prefill_node)
        decision = decide(self.policy, self.decision_laws, view)
        if decision.decode is not None:
            request.decode_node = decision.decode
        router.book_decode(request, now)

    def _view(
        self, router: Router, request: Request, now: int, hit_tokens: list[int], prefilled_on: int | None
    ) -> RouterView:
        if router.live:
            router.take_sample(now, self._prefill_states(), self._decode_states())
        own_flows = [self.links.own_flows(u, router.index, len(self.routers)) for u in range(len(self.cluster.uplinks))]
        tie_seed = draw(self.seed, TIE_SEED, request.index, 0 if prefilled_on is None else 1)
        reuse = self.cluster.discipline.decode_prefix_reuse
        held_tokens = [d.held_tokens(request) if reuse else 0 for d in self.decode]
        return router.view(request, now, tie_seed, hit_tokens, held_tokens, own_flows, prefilled_on)

    def _decide(self, router: Router, request: Request, now: int, hit_tokens: list[int]) -> tuple[int, int] | None:
        view = self._view(router, request, now, hit_tokens, None)
        decision = decide(self.policy, self.decision_laws, view)
        if decision.prefill is None or decision.decode is None:
            return None
        for candidate in decision.candidates:
            if (candidate.prefill, candidate.decode) == (decision.prefill, decision.decode):
                request.predicted_ttft_s = math.nan if candidate.ttft_s is None else candidate.ttft_s
                request.predicted_tpot_s = math.nan if candidate.tpot_s is None else candidate.tpot_s
        return decision.prefill, decision.decode

    def _drop(self, request: Request, status: Status, now: int) -> None:
        """A placed request is over, wherever it is."""
        self.links.drop(request, now)
        if not request.released:
            self.prefill[request.prefill_node].drop(request, now)
        if request.prefill_finished_ns != NOT_YET:
            self.decode[request.decode_node].drop(request, now)
        request.status = status

    def _transfer(self, index: int, now: int) -> None:
        what, request = self.links.handle(index, now)
        if what == "visible":
            self.decode[request.decode_node].land(request, now)
        elif what == "drained" and self.cluster.discipline.release == "transfer":
            self.prefill[request.prefill_node].release(request, now)

    def _first_token(self, request: Request, now: int) -> bool:
        """P has made the answer's first token; whether that was all."""
        request.tokens_made = 1
        request.first_token_ns = request.last_token_ns = now
        if request.output_tokens > 1:
            return False
        request.finished_ns = now
        request.status = Status.COMPLETED
        self.prefill[request.prefill_node].release(request, now)
        return True

    def _decode_boundary(self, index: int, now: int) -> None:
        result = self.decode[index].boundary(now)
        if self.cluster.discipline.release == "activation":
            for request in result.activated:
                self.prefill[request.prefill_node].release(request, now)
        for request in result.reserved:
            self.links.start(request, now)

    def counters(self) -> Counters:
        """Events so far."""
        return Counters(
            prefill_steps=sum(p.steps_finished for p in self.prefill),
            decode_steps=sum(d.steps_finished for d in self.decode),
            preemptions=sum(d.preemptions for d in self.decode),
            evictions=sum(p.evictions for p in self.prefill),
            hit_blocks=sum(p.hit_blocks for p in self.prefill),
            blocked=sum(p.blocked for p in self.prefill),
            shared=self.links.shared,
            stale=sum(r.stale for r in self.routers),
            expired=sum(r.expired for r in self.routers),
            timed_out=sum(p.timed_out for p in self.prefill),
            swapped_tokens=sum(d.swapped_tokens for d in self.decode),
        )

    def itl_counts(self) -> npt.NDArray[np.int64]:
        """Gaps between tokens so far, (classes, BINS)."""
        counts = np.zeros((len(self.policy.classes), BINS), np.int64)
        for node in self.decode:
            for at, gaps in node.gaps.items():
                counts[at] += gaps
        return counts


def replay_reference(
    cluster: Cluster,
    laws: Estimators,
    policy: Policy,
    workload: Workload,
    *,
    seed: int,
    estimated_output: Int32 | None = None,
    expected_output: Int32 | None = None,
    decision_laws: Estimators | None = None,
    noise: Noise | None = None,
) -> Replay:
    """Replay `workload` on `cluster` under `policy`, step by step.

    `laws` drive the pool's true times, `decision_laws` (default: the same) the router's decisions. Its
    length law estimates answers, unless `estimated_output` and `expected_output` fix them: tokens at the booking
    quantile and at the median, shape (requests,).

    Raises TwinError if a request never ends, which a pool and a family that keep to the rules do not let happen.
    """
    requests = requests_of(workload, policy, estimated_output, expected_output)
    pool = Pool(cluster, laws, policy, requests, seed, decision_laws or laws, noise)
    while events := pool.due():
        pool.step(min(events))
    for request in requests:
        if request.status is None:
            raise TwinError("every accepted request must end", value=request.index, place="request")
    return as_replay(requests, pool.counters(), pool.itl_counts())
