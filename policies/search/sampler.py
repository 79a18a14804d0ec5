"""Optuna's TPE, asked for whole batches: each has a sampler of its own, which knows the trials before it in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from policies.search.knobs import Knob
from policies.search.space import Point, Space
from policies.search.trials import Trial, shortfalls


class Sampler:
    """Points of one search. What a batch is depends on the seed, its number and the trials before it only.

    The study is kept from batch to batch, since building it anew from all trials takes longer than asking. What was
    asked is marked as failed there, which the sampler leaves out, and comes back as a trial once it has its score.
    """

    def __init__(self, space: Space, seed: int, startup: int, limits: Sequence[float] = ()) -> None:
        self._space, self._seed, self._startup, self._limits = space, seed, startup, tuple(limits)
        self._axes: dict[str, Any] = {}
        self._study: Any = None
        self._told = 0

    def batch(self, before: Sequence[Trial], starts: Sequence[Point], size: int, index: int) -> Iterator[Point]:
        """`size` points: start points first, the rest asked of a sampler that was told all trials before the batch.

        They come one by one: workers replay the first ones while the others are asked for.
        """
        points: list[Point] = [dict(s) for s in starts[:size]]
        if len(points) == size or not self._space.knobs:
            yield from points or [self._space.default_point()]
            return
        import optuna

        if self._study is None:
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            self._axes = {knob.name: _axis(knob) for knob in self._space.knobs}
            self._study = optuna.create_study(direction="maximize")
        self._tell(before)
        self._study.sampler = optuna.samplers.TPESampler(
            seed=(self._seed * 1_000_003 + index) % 2**32,
            n_startup_trials=self._startup,
            multivariate=True,
            constant_liar=True,
        )
        asked = []
        for point in points:
            self._study.enqueue_trial(self._coordinates(point))
            asked.append(self._study.ask(fixed_distributions=self._axes))
            yield point
        while len(asked) < size:
            asked.append(self._study.ask(fixed_distributions=self._axes))
            yield {k.name: float(asked[-1].params[k.name]) for k in self._space.knobs}
        for trial in asked:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def _tell(self, before: Sequence[Trial]) -> None:
        from optuna.trial import create_trial

        for t in before[self._told :]:
            limits = {f"class {i}": short for i, short in enumerate(shortfalls(t.score.classes, self._limits))}
            self._study.add_trial(
                create_trial(
                    params=self._coordinates(t.point), distributions=self._axes, value=t.value, constraints=limits
                )
            )
        self._told = len(before)

    def _coordinates(self, point: Point) -> dict[str, float]:
        return {k.name: point[k.name] if k.scale == "log" else round(point[k.name]) for k in self._space.knobs}


def _axis(knob: Knob) -> Any:  # noqa: ANN401  # one of optuna's distributions
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if knob.scale == "choice":
        return CategoricalDistribution(range(len(knob.choices)))
    if knob.scale == "whole":
        return IntDistribution(int(knob.low), int(knob.high))
    return FloatDistribution(knob.low, knob.high, log=True)
