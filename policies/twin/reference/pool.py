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
from policies.lengths import arrival_of
from policies.policy import Policy
from policies.twin.cluster import Cluster
from policies.twin.outcomes import Counters, Noise, Replay, Status
from policies.twin.reference.decode import DecodeNode, DecodeState
from policies.twin.reference.links import Links
from policies.twin.reference.prefill import PrefillNode, PrefillState
from policies.twin.reference.request import TIE_SEED, Request, blocks_for, draw
from policies.twin.reference.router import Router
from policies.twin.workload import Workload

Int32 = npt.NDArray[np.int32]

ARRIVAL, TRANSFER, PREFILL, DECODE, SAMPLE = 1, 2, 3, 4, 5
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
        self.prefill = [
            PrefillNode(p, node, block, discipline, laws, seed, noise) for p, node in enumerate(cluster.prefill)
        ]
        self.decode = [
            DecodeNode(d, node, block, discipline, laws, seed, noise) for d, node in enumerate(cluster.decode)
        ]
        self.links = Links(cluster, laws.transfer, seed, noise)
        self.routers = [Router(r, cluster, policy, decision_laws.length) for r in range(cluster.routers.count)]
        self.arrived = 0

    def due(self) -> list[Event]:
        """Every event that will happen if nothing comes before it."""
        events: list[Event] = []
        if self.arrived < len(self.requests):
            events.append((self.requests[self.arrived].arrival_ns, ARRIVAL, self.arrived))
            # Samples matter to decisions only, so there are none after the last arrival.
            events += [(r.next_tick_ns, SAMPLE, r.index) for r in self.routers if not r.live]
        events += [(time, TRANSFER, index) for time, index in self.links.events()]
        events += [(p.boundary_ns, PREFILL, p.index) for p in self.prefill if p.boundary_ns is not None]
        events += [(d.boundary_ns, DECODE, d.index) for d in self.decode if d.boundary_ns is not None]
        return events

    def step(self, event: Event) -> None:
        """Let one event happen."""
        now, kind, index = event
        if kind == ARRIVAL:
            self.arrived += 1
            self._arrive(self.requests[index], now)
        elif kind == TRANSFER:
            self._transfer(index, now)
        elif kind == PREFILL:
            for request in self.prefill[index].boundary(now):
                self.decode[request.decode_node].join(request, now)
        elif kind == DECODE:
            self._decode_boundary(index, now)
        else:
            self.routers[index].take_sample(now, self._prefill_states(), self._decode_states())

    def _prefill_states(self) -> list[PrefillState]:
        return [
            PrefillState(p.backlog_tokens, p.backlog_requests, p.capacity - p.pinned, self.links.sending(p.index))
            for p in self.prefill
        ]

    def _decode_states(self) -> list[DecodeState]:
        return [d.observe() for d in self.decode]

    def _too_large(self, request: Request) -> bool:
        prefill, decode = self.prefill, self.decode
        if request.forced is not None:
            prefill, decode = [prefill[request.forced[0]]], [decode[request.forced[1]]]
        prompt_blocks = blocks_for(request.prompt_tokens, self.cluster.block_tokens)
        all_blocks = blocks_for(request.prompt_tokens + request.output_tokens, self.cluster.block_tokens)
        return all(p.capacity < prompt_blocks for p in prefill) or all(d.capacity < all_blocks for d in decode)

    def _arrive(self, request: Request, now: int) -> None:
        if self._too_large(request):
            request.status = Status.TOO_LARGE
            return
        router = self.routers[request.index % len(self.routers)]
        router.estimate(request, now)
        hit_tokens = [p.matched_blocks(request) * self.cluster.block_tokens for p in self.prefill]
        pair = request.forced
        if pair is None:
            pair = self._decide(router, request, now, hit_tokens)
        if pair is None:
            request.status = Status.REJECTED
            return
        request.prefill_node, request.decode_node = pair
        request.expected_new_tokens = request.prompt_tokens - hit_tokens[request.prefill_node]
        router.book(request, now)
        self.prefill[request.prefill_node].join(request, now)

    def _decide(self, router: Router, request: Request, now: int, hit_tokens: list[int]) -> tuple[int, int] | None:
        if router.live:
            router.take_sample(now, self._prefill_states(), self._decode_states())
        own_flows = [self.links.own_flows(u, router.index, len(self.routers)) for u in range(len(self.cluster.uplinks))]
        view = router.view(request, now, draw(self.seed, TIE_SEED, request.index, 0), hit_tokens, own_flows)
        decision = decide(self.policy, self.decision_laws, view)
        if decision.prefill is None or decision.decode is None:
            return None
        for candidate in decision.candidates:
            if (candidate.prefill, candidate.decode) == (decision.prefill, decision.decode):
                request.predicted_ttft_s = math.nan if candidate.ttft_s is None else candidate.ttft_s
                request.predicted_tpot_s = math.nan if candidate.tpot_s is None else candidate.tpot_s
        return decision.prefill, decision.decode

    def _transfer(self, index: int, now: int) -> None:
        what, request = self.links.handle(index, now)
        if what == "visible":
            self.decode[request.decode_node].land(request, now)
        elif self.cluster.discipline.release == "transfer":
            self.prefill[request.prefill_node].release(request, now)

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
        )


def requests_of(
    workload: Workload, policy: Policy, estimated_output: Int32 | None, expected_output: Int32 | None
) -> list[Request]:
    """The workload's rows as requests. Estimates that are given are fixed, of shape (requests,)."""
    result = []
    names = [c.name for c in policy.classes]
    learned = None if workload.arrivals is None else workload.arrivals.learned
    for i in range(workload.requests):
        first, last = int(workload.block_offset[i]), int(workload.block_offset[i + 1])
        pair = (int(workload.forced_prefill[i]), int(workload.forced_decode[i]))
        result.append(
            Request(
                index=i,
                arrival_ns=int(workload.arrival_ns[i]),
                prompt_tokens=int(workload.prompt_tokens[i]),
                output_tokens=max(1, int(workload.output_tokens[i])),
                hashes=[int(block) for block in workload.block_ids[first:last]],
                class_index=int(workload.class_index[i]),
                arrival=None if estimated_output is not None else arrival_of(names, workload, i),
                learned=learned is None or bool(learned[i]),
                forced=pair if min(pair) >= 0 else None,
                estimated_output=-1 if estimated_output is None else int(estimated_output[i]),
                expected_output=-1 if expected_output is None else int(expected_output[i]),
            )
        )
    return result


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
    return as_replay(requests, pool.counters())


def as_replay(requests: list[Request], counters: Counters) -> Replay:
    """Requests as arrays, in workload order."""

    def column(name: str, dtype: type[np.generic]) -> npt.NDArray[np.generic]:
        return np.array([getattr(r, name) for r in requests], dtype=dtype)

    int32 = (
        "status",
        "prefill_node",
        "decode_node",
        "cached_tokens",
        "preemptions",
        "estimated_output",
        "expected_output",
    )
    int64 = (
        "prefill_started_ns",
        "prefill_finished_ns",
        "transfer_started_ns",
        "transfer_drained_ns",
        "transfer_finished_ns",
        "activated_ns",
        "first_token_ns",
        "finished_ns",
    )
    float64 = ("predicted_ttft_s", "predicted_tpot_s")
    columns = {name: column(name, np.int32) for name in int32}
    columns |= {name: column(name, np.int64) for name in int64}
    columns |= {name: column(name, np.float64) for name in float64}
    return Replay(**columns, counters=counters)  # type: ignore[arg-type]
