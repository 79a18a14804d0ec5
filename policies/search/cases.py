"""One evaluation of a policy: a day's workload at one load, and what search and evidence keep of its replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from policies import objective
from policies.evidence.relaxation import relaxation_s
from policies.objective import Goal, Outcome
from policies.policy import Policy
from policies.search.trials import Score
from policies.twin.cluster import Cluster
from policies.twin.outcomes import Replay
from policies.twin.workload import Workload

if TYPE_CHECKING:
    from policies.search.detail import Detail

PIECES = 4
"""Equal-count pieces of a day's scored requests: the slices over which policies are paired."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload by name (a day), the factor on its arrival rate, and the drill that it goes through, "" = none.

    `refit`: which of the evaluator's refits of the estimators are its laws, counted from 1; 0 = the estimators.
    `draw`: which draw of the answers' lengths it has, counted from 1 (`drawn.with_drawn_lengths`); 0 = the log's.
    """

    day: str
    load: float = 1.0
    drill: str = ""
    refit: int = 0
    draw: int = 0


@dataclass(frozen=True, slots=True)
class CaseScore:
    """A policy's result on a case. Goodput is hard, `soft` softened; `slices` softened, one value a piece of the day.

    `block_value`, `block_weight`: sums of hard goodput per 5 s block, see `objective.BlockSums`.
    """

    case: Case
    goodput_frac: float
    soft: float
    slices: tuple[float, ...]
    block_value: tuple[float, ...]
    block_weight: tuple[float, ...]
    relaxation_s: float
    outcome: Outcome


class Evaluator(Protocol):
    """Scores a policy on a case, or looks closer at its replay; both are pure functions of policy and case."""

    def __call__(self, policy: Policy, case: Case) -> CaseScore: ...  # noqa: D102

    def detail(self, policy: Policy, case: Case) -> Detail: ...  # noqa: D102


class EvaluatorFactory(Protocol):
    """What is sent to a worker: small, and able to build the evaluator there."""

    def build(self) -> Evaluator: ...  # noqa: D102


def score_case(case: Case, cluster: Cluster, workload: Workload, replay: Replay, goal: Goal) -> CaseScore:
    """Keep of a replay what decisions are made on."""
    times = objective.latency(workload, replay)
    ok, soft = objective.met(workload, times, goal), objective.softened(workload, times, goal)
    weight = objective.weights(workload, goal)
    blocks = objective.block_sums(workload, ok, weight)
    pieces = np.array_split(np.flatnonzero(workload.scored), PIECES)
    return CaseScore(
        case=case,
        goodput_frac=objective.goodput_frac(ok, weight),
        soft=objective.goodput_frac(soft, weight),
        slices=tuple(objective.goodput_frac(soft[piece], weight[piece]) for piece in pieces),
        block_value=tuple(blocks.value.tolist()),
        block_weight=tuple(blocks.weight.tolist()),
        relaxation_s=relaxation_s(workload, replay),
        outcome=objective.outcome(cluster, workload, replay, goal),
    )


def search_score(scores: Sequence[CaseScore]) -> Score:
    """One policy's cases as the search sees them.

    Objective: mean softened goodput over all cases. Slices: one per day and piece, the mean over the day's loads (the
    loads of a day are the same traffic, no independent evidence). Classes: mean hard goodput over all cases.
    """
    days = sorted({s.case.day for s in scores})
    slices: list[float] = []
    for day in days:
        rows = np.array([s.slices for s in scores if s.case.day == day])
        slices += rows.mean(axis=0).tolist()
    by_class = [tuple(s.outcome.goodput_frac_by_class.values()) for s in scores]
    classes = tuple(float(share) for share in np.mean(by_class, axis=0))
    tails = [s.outcome.ttft_ms.p99 for s in scores if s.outcome.ttft_ms.p99 is not None]
    return Score(
        value=float(np.mean([s.soft for s in scores])),
        slices=tuple(slices),
        classes=classes,
        goodput_frac=float(np.mean([s.goodput_frac for s in scores])),
        ttft_p99_ms=float(np.mean(tails)) if tails else 0.0,
        moved_bytes=float(np.mean([s.outcome.transferred_bytes for s in scores])),
    )
