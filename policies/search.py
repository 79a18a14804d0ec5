"""The search of shared weights: TPE in fixed batches by ask and tell, one coordinator, workers that only evaluate.

Every batch is a function of (seed, batch number, the trials before it in order): its sampler is built anew from those.
So the winner does not depend on the number of workers or on how often the search was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from features.errors import PolicyError
from policies.search_journal import Journal
from policies.search_space import Knob, Point, Space
from policies.search_trials import Trial, best_of, nearest_within_one_error

Scores = tuple[float, tuple[float, ...]]
"""Objective, and softened goodput by slice."""


@dataclass(frozen=True, slots=True)
class Budget:
    """`trials` at most, in batches of `batch`; stops after `patience` batches that gained less than `min_gain` goodput.

    The first `startup` trials are the start points and then random ones.
    """

    trials: int = 96
    batch: int = 8
    patience: int = 4
    min_gain: float = 0.0005
    startup: int = 16

    def __post_init__(self) -> None:
        if not (self.trials >= 1 and self.batch >= 1 and self.patience >= 1 and self.startup >= 1):
            raise PolicyError("every number of a search budget must be at least 1", value=asdict(self))


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`best` has the highest objective; `chosen` is to ship: the nearest to the default within one standard error.

    `touched`: knobs whose bound the chosen point lies on (within 1 % of the range).
    """

    trials: tuple[Trial, ...]
    best: Trial
    chosen: Trial
    stopped: str
    touched: tuple[str, ...]


def search(
    space: Space,
    evaluate: Callable[[Sequence[Point]], Iterable[Scores]],
    *,
    seed: int,
    budget: Budget,
    starts: Sequence[Point] = (),
    context: str = "",
    journal: Path | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> SearchResult:
    """Search `space` from its default and `starts`.

    `evaluate` scores points, in their order, lazily if it can (each score is written to the journal as it comes).
    `context` names the inputs that the scores depend on (a digest): a journal of others is refused.
    `progress(done, at most, best so far)` is called after every batch.
    """
    queue: list[Point] = [space.default_point(), *starts]
    header = {
        "context": context,
        "seed": seed,
        "budget": asdict(budget),
        "knobs": [asdict(k) for k in space.knobs],
        "starts": [dict(s) for s in queue],
    }
    kept = Journal(journal, header)
    number, idle, best_value, stopped = 0, 0, float("-inf"), "budget used up"
    batch_index = 0
    while number < budget.trials:
        size = min(budget.batch, budget.trials - number)
        points = _batch(space, kept.trials[:number], queue[number : number + size], size, seed, batch_index, budget)
        _finish(kept, points, number, evaluate)
        number, batch_index = number + size, batch_index + 1
        reached = best_of(kept.trials[:number]).value
        idle = 0 if reached > best_value + budget.min_gain else idle + 1
        best_value = max(best_value, reached)
        if progress is not None:
            progress(number, budget.trials, best_value)
        if idle >= budget.patience and number >= max(budget.startup, len(queue)):
            stopped = f"no gain in {idle} batches"
            break
        if not space.knobs:
            stopped = "nothing to search"
            break
    trials = tuple(kept.trials[:number])
    chosen = nearest_within_one_error(space, trials)
    return SearchResult(trials, best_of(trials), chosen, stopped, _touched(space.knobs, chosen.point))


def _finish(
    kept: Journal, points: Sequence[Point], first: int, evaluate: Callable[[Sequence[Point]], Iterable[Scores]]
) -> None:
    """Bring the journal to the end of this batch; what it already has must be what was asked now."""
    done = kept.trials[first : first + len(points)]
    for trial, point in zip(done, points, strict=False):
        if dict(trial.point) != dict(point):
            raise PolicyError(
                "a resumed search asks for the points that its journal holds",
                value=trial.number,
                hint="the journal comes from another version of the sampler: start anew",
            )
    missing = points[len(done) :]
    if not missing:
        return
    scores: Iterator[Scores] = iter(evaluate(missing))
    for at, point in enumerate(missing, start=first + len(done)):
        value, slices = next(scores)
        kept.add(Trial(at, point, value, slices))


def _batch(
    space: Space, before: Sequence[Trial], starts: Sequence[Point], size: int, seed: int, index: int, budget: Budget
) -> list[Point]:
    """The points of one batch: start points first, the rest asked of a sampler that was told all trials before it."""
    points: list[Point] = [dict(s) for s in starts[:size]]
    if len(points) == size or not space.knobs:
        return points or [space.default_point()]
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    axes = _axes(space.knobs)
    sampler = optuna.samplers.TPESampler(
        seed=(seed * 1_000_003 + index) % 2**32, n_startup_trials=budget.startup, multivariate=True, constant_liar=True
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.add_trials(
        [optuna.trial.create_trial(params=dict(t.point), distributions=axes, value=t.value) for t in before]
    )
    for point in points:
        study.enqueue_trial(dict(point))
        study.ask(fixed_distributions=axes)
    while len(points) < size:
        asked = study.ask(fixed_distributions=axes).params
        points.append({k.name: float(asked[k.name]) for k in space.knobs})
    return points


def _axes(knobs: Sequence[Knob]) -> dict[str, Any]:
    from optuna.distributions import FloatDistribution, IntDistribution

    axes: dict[str, Any] = {}
    for knob in knobs:
        if knob.whole:
            axes[knob.name] = IntDistribution(int(knob.low), int(knob.high))
        else:
            axes[knob.name] = FloatDistribution(knob.low, knob.high, log=True)
    return axes


def _touched(knobs: Sequence[Knob], point: Mapping[str, float]) -> tuple[str, ...]:
    """Searched numbers on a bound; a switched-off term and whole steps do not count."""
    touched = []
    for knob in knobs:
        if knob.whole or knob.value(point[knob.name]) == 0.0:
            continue
        margin = (knob.high / knob.low) ** 0.01
        if point[knob.name] >= knob.high / margin or point[knob.name] <= knob.low * margin:
            touched.append(knob.name)
    return tuple(touched)
