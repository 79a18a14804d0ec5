"""The search of a space: TPE in fixed batches by ask and tell, one coordinator, workers that only evaluate.

Every batch is a function of (seed, batch number, the trials before it in order): its sampler is built anew from those.
So the winner does not depend on the number of workers or on how often the search was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from features.errors import PolicyError
from policies.search_journal import Journal
from policies.search_knobs import Knob
from policies.search_space import Point, Space
from policies.search_trials import Score, Trial, best_of, nearest_within_one_error, shortfalls

Evaluate = Callable[[Sequence[Point], Trial | None], Iterable[Score]]
"""Points and the leader when their batch began -> their scores, in their order."""


@dataclass(frozen=True, slots=True)
class Budget:
    """`trials` at most, in batches of `batch`; stops after `patience` batches that gained less than `min_gain` goodput.

    The first `startup` trials are the start points and then random ones. `loss`: hard goodput that a class may lose
    against the default before the trial counts as none; None = no limit.
    """

    trials: int = 96
    batch: int = 8
    patience: int = 4
    min_gain: float = 0.0005
    startup: int = 16
    loss: float | None = None

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
    evaluate: Evaluate,
    *,
    seed: int,
    budget: Budget,
    starts: Sequence[Point] = (),
    known: Sequence[Trial] = (),
    context: str = "",
    journal: Path | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> SearchResult:
    """Search `space` from its default and `starts`, or on from the `known` trials of an earlier search.

    `evaluate` scores points, in their order (each score is written to the journal as it comes).
    `context` names the inputs that the scores depend on (a digest): a journal of others is refused.
    `progress(done, at most, best so far)` is called after every batch.
    """
    queue: list[Point] = [*([] if known else [space.default_point()]), *starts]
    header = {
        "context": context,
        "seed": seed,
        "budget": asdict(budget),
        "knobs": [asdict(k) for k in space.knobs],
        "starts": [dict(s) for s in queue],
        "known": len(known),
    }
    kept = Journal(journal, header)
    number, idle, stopped = 0, 0, "budget used up"
    best_value = best_of(known, budget.loss).value if known else float("-inf")
    batch_index = 0
    while number < budget.trials:
        size = min(budget.batch, budget.trials - number)
        before = _joined(known, kept.trials[:number])
        points = _batch(space, before, queue[number : number + size], size, seed, batch_index, budget)
        leader = best_of(before, budget.loss) if before else None
        _finish(kept, points, leader, number, evaluate)
        number, batch_index = number + size, batch_index + 1
        reached = best_of(_joined(known, kept.trials[:number]), budget.loss).value
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
    trials = _joined(known, kept.trials[:number])
    chosen = nearest_within_one_error(space, trials, loss=budget.loss)
    touched = tuple(k.name for k in space.knobs if k.on_bound(chosen.point[k.name]))
    return SearchResult(trials, best_of(trials, budget.loss), chosen, stopped, touched)


def _joined(known: Sequence[Trial], own: Sequence[Trial]) -> tuple[Trial, ...]:
    """All trials by number, those of this search behind what was known."""
    return (*known, *(replace(t, number=len(known) + t.number) for t in own))


def _finish(kept: Journal, points: Sequence[Point], leader: Trial | None, first: int, evaluate: Evaluate) -> None:
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
    for at, (point, score) in enumerate(zip(missing, evaluate(missing, leader), strict=True), start=first + len(done)):
        kept.add(Trial(at, point, score))


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
        [
            optuna.trial.create_trial(
                params={name: _coordinate(axes[name], raw) for name, raw in t.point.items()},
                distributions=axes,
                value=t.value,
                constraints={f"class {i}": short for i, short in enumerate(shortfalls(before[0], t, budget.loss))},
            )
            for t in before
        ]
    )
    for point in points:
        study.enqueue_trial({name: _coordinate(axes[name], raw) for name, raw in point.items()})
        study.ask(fixed_distributions=axes)
    while len(points) < size:
        asked = study.ask(fixed_distributions=axes).params
        points.append({k.name: float(asked[k.name]) for k in space.knobs})
    return points


def _axes(knobs: Sequence[Knob]) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    axes: dict[str, Any] = {}
    for knob in knobs:
        if knob.scale == "choice":
            axes[knob.name] = CategoricalDistribution(range(len(knob.choices)))
        elif knob.scale == "whole":
            axes[knob.name] = IntDistribution(int(knob.low), int(knob.high))
        else:
            axes[knob.name] = FloatDistribution(knob.low, knob.high, log=True)
    return axes


def _coordinate(axis: Any, raw: float) -> float:  # noqa: ANN401  # one of optuna's distributions
    from optuna.distributions import FloatDistribution

    return raw if isinstance(axis, FloatDistribution) else round(raw)
