"""All candidates of a night on its train days: the incumbent, the default, simple families, and what was searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.policy import Policy
from policies.search import Budget, SearchResult, search
from policies.search_cases import Case
from policies.search_families import Arm, arm, best_variants, choose_winner
from policies.search_space import Space, apply, point_of
from policies.search_workers import WorkerPool, point_scorer

INCUMBENT = "incumbent"
DEFAULT = "default"
SEARCHED = "searched"
LOADS = (1.0, 1.15)
"""Loads of the train days: a policy tuned at one load falls off the cliff at the next."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Arms in order of preference, the name of the one to test, and the search behind `searched`.

    `summary`: plain values for the evidence: trials, why it stopped, knobs frozen and touched, the chosen point.
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
    warm_starts: Sequence[Policy] = (),
    context: str = "",
    journal: Path | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Candidates:
    """Search around `space.default`, score everything else on the same cases, choose the winner on train alone.

    `families`: the simple ones to put beside it; `racks`: of the pool (same-rack variants need two). `warm_starts`:
    earlier winners of the searched family.
    """
    result = search(
        space,
        point_scorer(pool, space, cases),
        seed=seed,
        budget=budget,
        starts=[point_of(space, policy) for policy in warm_starts],
        context=context,
        journal=journal,
        progress=progress,
    )
    fixed = {INCUMBENT: incumbent, DEFAULT: space.default, SEARCHED: apply(space, result.chosen.point)}
    scored = zip(fixed.items(), pool.by_policy(list(fixed.values()), cases), strict=True)
    known = {name: arm(name, policy, scores) for (name, policy), scores in scored}
    simple = best_variants(pool, families, space.default, racks, space.levels, cases)
    arms = (known[INCUMBENT], known[DEFAULT], *simple, known[SEARCHED])
    summary = {
        "trials": len(result.trials),
        "stopped": result.stopped,
        "default_soft_frac": result.trials[0].value,
        "best_soft_frac": result.best.value,
        "chosen_soft_frac": result.chosen.value,
        "chosen_trial": result.chosen.number,
        "chosen_point": {k.name: k.value(result.chosen.point[k.name]) for k in space.knobs},
        "distance_from_default": space.distance(result.chosen.point),
        "frozen": dict(space.frozen),
        "touched_bounds": list(result.touched),
    }
    return Candidates(arms, choose_winner(arms).name, result, summary)
