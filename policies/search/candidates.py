"""All candidates of a night on its train days: the incumbent, the default, simple families, and what was searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.policy import Policy
from policies.search.cases import Case, search_score
from policies.search.families import Arm, arm, choose_winner, family_spaces, missed
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
from policies.search.space import NO_FREEDOM, Freedom, Space
from policies.search.workers import WorkerPool

INCUMBENT = "incumbent"
DEFAULT = "default"
SEARCHED, PER_CLASS = SHARED, CLASSES
LOADS = (1.0, 1.15)
"""Loads of the train days: a policy tuned at one load falls off the cliff at the next."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Arms in order of preference, the name of the one to test, and the search behind `searched`.

    `limits`: the least hard goodput of every class on the train days, the incumbent's less `Budget.loss`.
    `summary`: plain values for the evidence: of every search its trials, why it stopped, knobs touched, the chosen
    point; knobs that were frozen and why.
    """

    arms: tuple[Arm, ...]
    winner: str
    result: SearchResult
    summary: Mapping[str, Any]
    limits: tuple[float, ...] = ()

    @property
    def policy(self) -> Policy:
        """The winner's policy."""
        return next(a.policy for a in self.arms if a.name == self.winner)


def train_cases(days: Sequence[str], loads: Sequence[float] = LOADS, *, drawn: bool = False) -> list[Case]:
    """Every train day at every load. `drawn`: the log's own lengths of answers at the load nearest to 1, draws of them
    at the others, so that a policy meets several days' worth of lengths with as many replays.
    """
    logged = min(loads, key=lambda load: abs(load - 1.0))
    draws = {load: at for at, load in enumerate((load for load in loads if load != logged), start=1)} if drawn else {}
    return [Case(day, load, draw=draws.get(load, 0)) for day in days for load in loads]


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
    context: str = "",
    journals: Path | None = None,
    progress: Progress | None = None,
) -> Candidates:
    """Search around `space.default` and every family of `families` with the same budget, choose the winner on train.

    `racks`: of the pool (same-rack variants need two). The incumbent is tried in every space that can hold it.
    `journals`: folder from which a killed night goes on. `context` names the inputs that the scores depend on.
    """
    simple = family_spaces(families, space.default, racks, space.levels, freedom)
    planned = planned_trials(space, simple, budget)
    now = next(pool.by_policy([incumbent], cases))
    loss = budget.loss
    limits = () if loss is None else tuple(share - loss for share in search_score(now).classes)
    searches = Searches(pool, cases, seed, budget, limits, context, journals, progress, planned)
    wide, result = search_shared(searches, space, incumbent)
    shared, own = search_classes(searches, wide, result, incumbent)
    last = {SEARCHED: shared} | ({} if own is None or own == shared else {PER_CLASS: own})
    policies = {DEFAULT: wide.default, **search_families(searches, simple, incumbent), **last}
    scored = zip(policies.items(), pool.by_policy(list(policies.values()), cases), strict=True)
    arms = (arm(INCUMBENT, incumbent, now), *(arm(name, policy, scores) for (name, policy), scores in scored))
    traffic = [{"day": c.day, "load": c.load, "lengths": "drawn" if c.draw else "logged"} for c in cases]
    summary = {
        "frozen": dict(space.frozen),
        "cases": traffic,
        "class_limits": dict(zip(now[0].outcome.goodput_frac_by_class, limits, strict=True)) if limits else {},
        "below_class_limits": [a.name for a in arms if missed(a, limits) > 0],
        "searches": searches.reports,
    }
    return Candidates(arms, choose_winner(arms, limits).name, result, summary, limits)
