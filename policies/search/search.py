"""The search of a space: TPE in fixed batches by ask and tell, one coordinator, workers that only evaluate.

Every batch is a function of (seed, batch number, the trials before it in order).
So the winner does not depend on the number of workers or on how often the search was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from features.errors import PolicyError
from policies.search.journal import Journal
from policies.search.sampler import Sampler
from policies.search.space import Point, Space
from policies.search.trials import Score, Trial, best_of, missed, nearest_within_one_error

Evaluate = Callable[[Iterable[Point], Trial | None], Iterable[Score]]
"""Points, as they come, and the leader when their batch began -> their scores, in their order."""


@dataclass(frozen=True, slots=True)
class Budget:
    """`trials` at most, in batches of `batch`; stops after `patience` batches that gained less than `min_gain` goodput.

    The first `startup` trials are the start points and then random ones. `loss`: hard goodput that a class may lose
    against what runs now before a trial counts as none; None = no limit.
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
    """`best` has the highest objective; `chosen` is to ship: the nearest to the anchor within one standard error.

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
    limits: Sequence[float] = (),
    anchor: Point | None = None,
    context: str = "",
    journal: Path | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> SearchResult:
    """Search `space` from its default and `starts`, or on from the `known` trials of an earlier search.

    `evaluate` scores points, in their order (each score is written to the journal as it comes).
    `limits`: the least hard goodput of every class, none = no limits.
    `anchor`: the point that stays where no other is shown to be better, None = the default.
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
        "limits": list(limits),
    }
    kept = Journal(journal, header)
    sampler = Sampler(space, seed, budget.startup, limits)
    number, idle, stopped = 0, 0, "budget used up"
    best = best_of(known, limits) if known else None
    batch_index = 0
    while number < budget.trials:
        size = min(budget.batch, budget.trials - number)
        trials = _joined(known, kept.trials[:number])
        points = sampler.batch(trials, queue[number : number + size], size, batch_index)
        _finish(kept, points, best, number, evaluate)
        number, batch_index = number + size if space.knobs else 1, batch_index + 1
        before, best = best, best_of(_joined(known, kept.trials[:number]), limits)
        idle = 0 if before is None or _gained(before, best, limits, budget.min_gain) else idle + 1
        if progress is not None:
            progress(number, budget.trials, best.value)
        if idle >= budget.patience and number >= max(budget.startup, len(queue)):
            stopped = f"no gain in {idle} batches"
            break
        if not space.knobs:
            stopped = "nothing to search"
            break
    trials = _joined(known, kept.trials[:number])
    chosen = nearest_within_one_error(space, trials, limits=limits, anchor=anchor)
    touched = tuple(k.name for k in space.knobs if k.on_bound(chosen.point[k.name]))
    return SearchResult(trials, best_of(trials, limits), chosen, stopped, touched)


def _gained(before: Trial, now: Trial, limits: Sequence[float], gain: float) -> bool:
    """Whether a batch was worth it: limits that were missed are kept or nearer, or goodput is higher."""
    return missed(now, limits) < missed(before, limits) or now.value > before.value + gain


def _joined(known: Sequence[Trial], own: Sequence[Trial]) -> tuple[Trial, ...]:
    """All trials by number, those of this search behind what was known."""
    return (*known, *(replace(t, number=len(known) + t.number) for t in own))


def _finish(kept: Journal, points: Iterator[Point], leader: Trial | None, first: int, evaluate: Evaluate) -> None:
    """Bring the journal to the end of this batch; what it already has must be what was asked now."""
    done = kept.trials[first:]
    asked: list[Point] = []
    for trial in done:
        point = next(points, None)
        if point is None:
            return
        if dict(trial.point) != dict(point):
            raise PolicyError(
                "a resumed search asks for the points that its journal holds",
                value=trial.number,
                hint="the journal comes from another version of the sampler: start anew",
            )

    def missing() -> Iterator[Point]:
        for point in points:
            asked.append(point)
            yield point

    for at, score in enumerate(evaluate(missing(), leader)):
        kept.add(Trial(first + len(done) + at, asked[at], score))
