"""The searches of one night, one after the other with the same cases: shared weights, families, weights of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from policies.policy import Policy
from policies.search.cases import Case
from policies.search.families import first_points
from policies.search.race import racer
from policies.search.search import Budget, SearchResult, search
from policies.search.space import Point, Space, apply, delta_space, start_at, widened
from policies.search.trials import Trial, front, shortfalls
from policies.search.workers import WorkerPool

Progress = Callable[[int, int, float], None]
"""(trials done, of how many at most, best so far)."""

SHARED, WIDER, MORE, CLASSES = "searched", "searched.wider", "searched.more", "per_class"


@dataclass(slots=True)
class Searches:
    """Runs searches and counts their trials. `journals`: folder that keeps them, None = nowhere.

    `limits`: the least hard goodput of every class. `planned`: trials of all searches at most; what one leaves over is
    counted as done when it ends.
    """

    pool: WorkerPool
    cases: Sequence[Case]
    seed: int
    budget: Budget
    limits: tuple[float, ...] = ()
    context: str = ""
    journals: Path | None = None
    progress: Progress | None = None
    planned: int = 0
    done: int = 0
    best: float = float("-inf")
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def extra(self) -> Budget:
        """A third of the budget: for what follows a search."""
        trials = _third(self.budget)
        return replace(self.budget, trials=trials, startup=min(self.budget.startup, trials))

    def run(
        self,
        name: str,
        space: Space,
        budget: Budget,
        starts: Sequence[Point] = (),
        known: Sequence[Trial] = (),
        anchor: Point | None = None,
    ) -> SearchResult:
        """One search, or more of one whose trials are `known`; the report of it is kept under its name."""

        def tell(done: int, at_most: int, best: float) -> None:
            self.best = max(self.best, best)
            if self.progress is not None:
                self.progress(self.done + done, max(self.planned, self.done + at_most), self.best)

        result = search(
            space,
            racer(self.pool, space, self.cases),
            seed=self.seed + len(known),
            budget=budget,
            starts=starts,
            known=known,
            limits=self.limits,
            anchor=anchor,
            context=self.context,
            journal=None if self.journals is None else self.journals / f"{name.replace('/', '.')}.jsonl",
            progress=tell,
        )
        self.done += budget.trials if space.knobs else 1
        self.reports[name] = _report(space, result, anchor, self.limits)
        return result


def search_shared(searches: Searches, space: Space, incumbent: Policy) -> tuple[Space, SearchResult]:
    """Shared weights and the router's knobs. Bounds that the chosen point touches are widened once."""
    starts = start_at(space, incumbent)
    anchor = next(iter(starts), None)
    found = searches.run(SHARED, space, searches.budget, starts, anchor=anchor)
    if not found.touched:
        return space, found
    wide = widened(space, found.touched)
    return wide, searches.run(WIDER, wide, searches.extra, known=found.trials, anchor=anchor)


def search_classes(
    searches: Searches, space: Space, shared: SearchResult, incumbent: Policy
) -> tuple[Policy, Policy | None]:
    """The shared policy after as many trials more as classes of their own get, and the policy with these; None = none.

    So what own weights bring is not the budget's.
    """
    names = tuple(name for name, _ in space.frozen)
    if not delta_space(apply(space, shared.chosen.point), dict.fromkeys(names, ""), space.levels).knobs:
        return apply(space, shared.chosen.point), None
    anchor = next(iter(start_at(space, incumbent)), None)
    more = searches.run(MORE, space, searches.extra, known=shared.trials, anchor=anchor)
    policy = apply(space, more.chosen.point)
    deltas = delta_space(policy, dict.fromkeys(names, ""), space.levels)
    own = searches.run(CLASSES, deltas, searches.extra, start_at(deltas, incumbent))
    return policy, apply(deltas, own.chosen.point)


def search_families(searches: Searches, spaces: Mapping[str, Space], incumbent: Policy) -> dict[str, Policy]:
    """Every family's best point, each with the whole budget."""
    found = {}
    for name, space in spaces.items():
        result = searches.run(name, space, searches.budget, [*start_at(space, incumbent), *first_points(space)])
        found[name] = apply(space, result.best.point)
    return found


def planned_trials(space: Space, families: Mapping[str, Space], budget: Budget) -> int:
    """Trials that a night's searches make at most."""
    extra = _third(budget)
    names = dict.fromkeys((name for name, _ in space.frozen), "")
    steps = 3 if delta_space(space.default, names, space.levels).knobs else 1
    shared = budget.trials + steps * extra if space.knobs else 1
    return shared + sum(budget.trials if each.knobs else 1 for each in families.values())


def _third(budget: Budget) -> int:
    """Trials of what follows a search, a batch at least."""
    return max(budget.batch, budget.trials // 3)


def _report(space: Space, result: SearchResult, anchor: Point | None, limits: Sequence[float]) -> dict[str, Any]:
    return {
        "trials": len(result.trials),
        "given_up": sum(not t.score.whole for t in result.trials),
        "stopped": result.stopped,
        "default_soft_frac": result.trials[0].value,
        "best_soft_frac": result.best.value,
        "chosen_soft_frac": result.chosen.value,
        "chosen_trial": result.chosen.number,
        "chosen_point": {k.name: k.value(result.chosen.point[k.name]) for k in space.knobs},
        "distance_from_default": space.distance(result.chosen.point),
        "distance_from_incumbent": None if anchor is None else space.distance(result.chosen.point, anchor),
        "keeps_class_limits": max(shortfalls(result.chosen.score.classes, limits)) <= 0,
        "touched_bounds": list(result.touched),
        "front": [
            {
                "trial": t.number,
                "goodput_frac": t.score.goodput_frac,
                "ttft_p99_ms": t.score.ttft_p99_ms,
                "moved_bytes": t.score.moved_bytes,
            }
            for t in front(result.trials)
        ],
    }
