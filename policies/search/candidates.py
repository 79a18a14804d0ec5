"""All candidates of a night on its train days: the incumbent, the default, simple families, and what was searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.policy import Policy
from policies.search.cases import Case
from policies.search.families import Arm, arm, choose_winner, family_spaces
from policies.search.plan import (
    CLASSES,
    SHARED,
    Progress,
    Searches,
    planned_trials,
    search_classes,
    search_families,
    search_shared,
)
from policies.search.search import Budget, SearchResult
from policies.search.space import NO_FREEDOM, Freedom, Space, point_of
from policies.search.workers import WorkerPool

INCUMBENT = "incumbent"
DEFAULT = "default"
SEARCHED, PER_CLASS = SHARED, CLASSES
LOADS = (1.0, 1.15)
"""Loads of the train days: a policy tuned at one load falls off the cliff at the next."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Arms in order of preference, the name of the one to test, and the search behind `searched`.

    `summary`: plain values for the evidence: of every search its trials, why it stopped, knobs touched, the chosen
    point; knobs that were frozen and why.
    """

    arms: tuple[Arm, ...]
    winner: str
    result: SearchResult
    summary: Mapping[str, Any]

    @property
    def policy(self) -> Policy:
        """The winner's policy."""
        return next(a.policy for a in self.arms if a.name == self.winner)


def train_cases(days: Sequence[str], loads: Sequence[float] = LOADS) -> list[Case]:
    """Every train day at every load."""
    return [Case(day, load) for day in days for load in loads]


def find_candidates(
    pool: WorkerPool,
    space: Space,
    cases: Sequence[Case],
    *,
    incumbent: Policy,
    families: Sequence[str],
    racks: int,
    seed: int,
    budget: Budget,
    freedom: Freedom = NO_FREEDOM,
    warm_starts: Sequence[Policy] = (),
    context: str = "",
    journals: Path | None = None,
    progress: Progress | None = None,
) -> Candidates:
    """Search around `space.default` and every family of `families` with the same budget, choose the winner on train.

    `racks`: of the pool (same-rack variants need two). `warm_starts`: earlier winners of the searched family.
    `journals`: folder from which a killed night goes on. `context` names the inputs that the scores depend on.
    """
    simple = family_spaces(families, space.default, racks, space.levels, freedom)
    planned = planned_trials(space, simple, budget)
    searches = Searches(pool, cases, seed, budget, context, journals, progress, planned)
    wide, result = search_shared(searches, space, [point_of(space, policy) for policy in warm_starts])
    shared, own = search_classes(searches, wide, result)
    last = {SEARCHED: shared} | ({} if own is None or own == shared else {PER_CLASS: own})
    policies = {INCUMBENT: incumbent, DEFAULT: wide.default, **search_families(searches, simple), **last}
    scored = zip(policies.items(), pool.by_policy(list(policies.values()), cases), strict=True)
    arms = tuple(arm(name, policy, scores) for (name, policy), scores in scored)
    summary = {"frozen": dict(space.frozen), "searches": searches.reports}
    return Candidates(arms, choose_winner(arms).name, result, summary)
