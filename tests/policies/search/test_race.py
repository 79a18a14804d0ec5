"""The race: what is clearly behind stops, what may still win runs whole, and nobody else's place matters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from policies.policy import ClassPolicy, Policy, default_policy
from policies.search.cases import Case
from policies.search.race import keeps_up, racer
from policies.search.space import Point, Space, space_around
from policies.search.trials import Score, Trial
from policies.search.workers import Task, WorkerPool
from tests.policies.stub import StubFactory

CASES = [Case(f"d{day}", load) for day in range(4) for load in (1.0, 1.1)]


def space() -> Space:
    return space_around(default_policy((ClassPolicy("chat"),)), {}, (0.5, 0.9))


class Counting(WorkerPool):
    """Counts what it replays."""

    def scores(self, tasks: Iterable[Task]):
        mine = list(tasks)
        self.tasks = [*getattr(self, "tasks", []), *mine]
        return super().scores(mine)

    def days(self, policy: Policy) -> int:
        return len({case.day for each, case in self.tasks if each == policy})


def raced(points: Sequence[Point], led: bool = True) -> tuple[list[Score], Counting]:
    with Counting(StubFactory(), 1) as pool:
        scorer = racer(pool, space(), CASES)
        best = next(scorer([at(5.0)], None))
        pool.tasks = []
        return list(scorer(points, Trial(0, at(5.0), best) if led else None)), pool


def at(slo_risk: float) -> dict[str, float]:
    return {**space().default_point(), "SloRisk": slo_risk}


def test_who_is_far_behind_stops_after_a_day_and_who_is_near_runs_whole() -> None:
    (far, near), pool = raced([at(0.05), at(4.9)])
    assert (far.whole, near.whole) == (False, True)
    assert (len(far.slices), len(near.slices)) == (4, 16)
    assert len(pool.tasks) == 2 + 8
    # Its value is the leader's less what it was behind on the same slices: as if it had run whole.
    (whole,), _ = raced([at(0.05)], led=False)
    assert far.value == pytest.approx(whole.value, abs=0.01)


def test_a_score_does_not_depend_on_the_neighbours() -> None:
    together, _ = raced([at(0.05), at(4.9), at(1.0)])
    assert together == [raced([point])[0][0] for point in (at(0.05), at(4.9), at(1.0))]


def test_noise_alone_is_no_reason_to_stop() -> None:
    assert keeps_up((0.9, 0.8, 0.7, 0.9), (0.91, 0.79, 0.72, 0.89))
    assert not keeps_up((0.8, 0.7, 0.6, 0.8), (0.9, 0.81, 0.7, 0.9))
    assert keeps_up((0.1, 0.1), (0.9, 0.9))  # too few to tell
