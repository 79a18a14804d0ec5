"""Load carried at a goodput level: a gain quoted at one load is arbitrary, a pool falls off a cliff within 10 %."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from features.errors import PolicyError

Steps = Generator[float, float, "LoadCarried"]


@dataclass(frozen=True, slots=True)
class LoadCarried:
    """`load`: factor on the arrival rate at which goodput falls to `level`, interpolated.

    `bound`: `exact`, or `at_least` / `at_most` where the sweep ended before goodput crossed the level. `curve`: every
    (load, goodput) that was evaluated, by load.
    """

    level: float
    load: float
    bound: str
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """From `start` up while goodput holds (else down) by `step`, twice it, four times it …; then halve the bracket
    until it is no wider than `step`, and `halvings` times more.
    """

    level: float = 0.9
    start: float = 1.0
    step: float = 0.1
    low: float = 0.5
    high: float = 2.4
    halvings: int = 1

    def __post_init__(self) -> None:
        if not (0 < self.low <= self.start <= self.high and self.step > 0 and 0 < self.level < 1):
            raise PolicyError(
                "`0 < low <= start <= high` and `step > 0` must hold", value=(self.low, self.start, self.high)
            )


def sweep_steps(plan: SweepPlan) -> Steps:
    """A generator that asks for loads, is sent their goodput, and returns the load carried.

    Goodput is taken to fall with load: the first crossing from `start` is the answer.
    """
    curve: dict[float, float] = {}
    load = plan.start
    curve[load] = yield load
    up = curve[load] >= plan.level
    limit = plan.high if up else plan.low
    stride = plan.step
    while True:
        if load == limit:
            return LoadCarried(plan.level, load, "at_least" if up else "at_most", tuple(sorted(curve.items())))
        last = load
        load = round(min(limit, load + stride) if up else max(limit, load - stride), 9)
        stride *= 2
        curve[load] = yield load
        if (curve[load] >= plan.level) != up:
            break
    holds, falls = (last, load) if up else (load, last)
    halvings = plan.halvings + max(0, math.ceil(math.log2(abs(falls - holds) / plan.step) - 1e-9))
    for _ in range(halvings):
        middle = round((holds + falls) / 2, 9)
        curve[middle] = yield middle
        holds, falls = (middle, falls) if curve[middle] >= plan.level else (holds, middle)
    part = (curve[holds] - plan.level) / (curve[holds] - curve[falls])
    return LoadCarried(plan.level, holds + part * (falls - holds), "exact", tuple(sorted(curve.items())))


def most_loads(plan: SweepPlan) -> int:
    """Loads other than 1.0 that a sweep asks for at most, wherever goodput crosses the level."""
    most = 0
    for up in (True, False):
        held, done = 0, False
        while not done:
            held += 1
            steps, asked = sweep_steps(plan), [plan.start]
            next(steps)
            try:
                while True:
                    # The first `held` loads lie on the side where it starts, all others on the other one.
                    asked.append(steps.send(float((len(asked) <= held) == up)))
            except StopIteration:
                done = len(asked) <= held
            most = max(most, sum(load != 1.0 for load in asked))
    return most


def sweep_all(
    names: Sequence[str], plan: SweepPlan, goodput: Callable[[Sequence[tuple[str, float]]], Sequence[float]]
) -> Mapping[str, LoadCarried]:
    """Sweep all arms in step: each round asks `goodput` for one load of every arm that is not done, in order."""
    running = {name: sweep_steps(plan) for name in names}
    wanted = {name: next(steps) for name, steps in running.items()}
    done: dict[str, LoadCarried] = {}
    while wanted:
        asked = list(wanted.items())
        wanted = {}
        for (name, _), value in zip(asked, goodput(asked), strict=True):
            try:
                wanted[name] = running[name].send(value)
            except StopIteration as stop:
                done[name] = stop.value
    return {name: done[name] for name in names}
