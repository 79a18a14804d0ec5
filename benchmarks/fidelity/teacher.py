"""Forced replay that asks the router at every decision: is what the pool chose among the best by the router's own keys?

The plain replay and the plain rule of the family are asked; the compiled ones equal them (tests/policies). It is slow,
so the head of a log has to do: decisions count up to the arrival of the first request that is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.fidelity.logs import Logged
from benchmarks.fidelity.twin import policy
from models.portable.estimators import Estimators
from policies.families.registry import decide
from policies.twin.cluster import Cluster
from policies.twin.reference.convert import requests_of
from policies.twin.reference.pool import Pool
from policies.twin.reference.request import Request
from policies.twin.reference.router import Router
from policies.twin.workload import Workload

TIE = 1e-9


@dataclass(slots=True)
class Agreement:
    """Decisions, and those in which the logged node was among the best."""

    decisions: int = 0
    agreed: int = 0

    @property
    def share(self) -> float:
        """Part of the decisions that agreed."""
        return self.agreed / self.decisions

    def add(self, keys: tuple[float | None, ...], chosen: int) -> None:
        """One decision: the smallest key is the best."""
        best = min(key for key in keys if key is not None)
        own = keys[chosen]
        self.decisions += 1
        self.agreed += own is not None and own <= best + TIE


class _Teacher(Pool):
    """A pool that decides by the family and then does what the log says."""

    logged: Logged
    until_ns: int
    prefill_agreement: Agreement
    decode_agreement: Agreement

    def _decide(self, router: Router, request: Request, now: int, hit_tokens: list[int]) -> tuple[int, int] | None:
        decision = decide(self.policy, self.decision_laws, self._view(router, request, now, hit_tokens, None))
        chosen = int(self.logged.prefill[request.index])
        self.prefill_agreement.add(decision.prefill_keys, chosen)
        return chosen, int(self.logged.decode[request.index])

    def _choose_decode(self, request: Request, now: int) -> None:
        router = self.routers[request.index % len(self.routers)]
        view = self._view(router, request, now, [0] * len(self.prefill), request.prefill_node)
        decision = decide(self.policy, self.decision_laws, view)
        request.decode_node = int(self.logged.decode[request.index])
        if now < self.until_ns:
            self.decode_agreement.add(decision.decode_keys, request.decode_node)
        router.book_decode(request, now)


def agreement(pool: Cluster, laws: Estimators, logged: Logged, family: str, most: int) -> tuple[Agreement, Agreement]:
    """How often the log's P, and its D, are among the best; of at most the first `most` requests."""
    every = logged.workload
    count = min(most, every.requests)
    ones = np.ones(count, np.int32)
    requests = requests_of(_head(every, count), policy(family), ones, ones)
    teacher = _Teacher(pool, laws, policy(family), requests, 0, laws, None)
    teacher.logged = logged
    teacher.until_ns = int(every.arrival_ns[count]) if count < every.requests else np.iinfo(np.int64).max
    teacher.prefill_agreement, teacher.decode_agreement = Agreement(), Agreement()
    while events := teacher.due():
        event = min(events)
        if event[0] >= teacher.until_ns:
            break
        teacher.step(event)
    return teacher.prefill_agreement, teacher.decode_agreement


def _head(workload: Workload, count: int) -> Workload:
    free = np.full(count, -1, np.int32)
    return replace(
        workload,
        arrival_ns=workload.arrival_ns[:count],
        prompt_tokens=workload.prompt_tokens[:count],
        output_tokens=workload.output_tokens[:count],
        class_index=workload.class_index[:count],
        block_offset=workload.block_offset[: count + 1],
        block_ids=workload.block_ids[: workload.block_offset[count]],
        forced_prefill=free,
        forced_decode=free,
        scored=workload.scored[:count],
    )
