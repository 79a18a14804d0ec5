"""The search on a cheap surface: same winner unbroken, killed and resumed; finds a planted optimum; stops early."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from features.errors import PolicyError
from policies.policy import ClassPolicy, default_policy
from policies.search import space as spaces
from policies.search.search import Budget, SearchResult, search
from policies.search.space import Point, Space
from policies.search.trials import Score, Trial, best_of, front, nearest_within_one_error

SMALL = Budget(trials=40, batch=8, patience=40, startup=8)


def space(frozen: Sequence[str] = ("reserve_multiplier", "temperature_p_s", "temperature_d_s")) -> Space:
    policy = default_policy((ClassPolicy("chat"), ClassPolicy("batch", quantile=0.5)))
    return spaces.space_around(policy, dict.fromkeys(frozen, "test"), (0.5, 0.7, 0.9))


def hill(points: Sequence[Point], leader: Trial | None = None) -> Iterable[Score]:
    """Goodput that is best at SloRisk 5 and PrefillCompute 0.2."""
    for point in points:
        off = abs(math.log(point["SloRisk"] / 5.0)) + abs(math.log(point["PrefillCompute"] / 0.2))
        value = 0.95 - 0.05 * off
        yield Score(value, tuple(value + 0.001 * i for i in range(8)))


def run(seed: int = 3, journal: Path | None = None, budget: Budget = SMALL) -> SearchResult:
    return search(space(), hill, seed=seed, budget=budget, journal=journal)


def test_the_first_trial_is_the_default_and_the_search_improves_on_it() -> None:
    result = run()
    assert spaces.apply(space(), result.trials[0].point) == space().default
    assert result.best.value > result.trials[0].value + 0.05
    assert len(result.trials) == 40


def test_same_seed_same_trials_and_another_seed_others() -> None:
    assert run() == run()
    assert run().trials[20].point != run(seed=4).trials[20].point


class KilledError(RuntimeError):
    """The process is gone."""


@pytest.mark.parametrize("after", [0, 1, 7, 8, 13, 31])
def test_a_killed_search_resumes_to_the_same_winner(tmp_path: Path, after: int) -> None:
    path = tmp_path / "search.jsonl"
    left = after

    def dying(points: Sequence[Point], leader: Trial | None) -> Iterator[Score]:
        nonlocal left
        for score in hill(points):
            if left == 0:
                raise KilledError
            left -= 1
            yield score

    with pytest.raises(KilledError):
        search(space(), dying, seed=3, budget=SMALL, journal=path)
    with path.open("ab") as file:
        file.write(b'{"trial": 99, "poi')  # what a kill in the middle of a write leaves
    assert run(journal=path) == run()
    assert run(journal=path) == run()  # a finished journal evaluates nothing and says the same


def test_a_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search.jsonl"
    run(journal=path)
    with pytest.raises(PolicyError, match="journal"):
        run(seed=4, journal=path)


def test_no_gain_stops_early() -> None:
    flat = search(
        space(),
        lambda points, _: [Score(0.9, (0.9, 0.9)) for _ in points],
        seed=1,
        budget=Budget(trials=80, batch=4, patience=3, startup=8),
    )
    assert flat.stopped == "no gain in 3 batches"
    assert len(flat.trials) == 16
    assert flat.chosen.number == 0


def test_a_space_without_knobs_scores_the_default_only() -> None:
    every = [*spaces.WEIGHTS, "quantile_step", "reserve_multiplier", "temperature_p_s", "temperature_d_s"]
    result = search(
        space(every), lambda points, _: [Score(0.5, (0.5, 0.5)) for _ in points], seed=1, budget=Budget(batch=1)
    )
    assert len(result.trials) == 1
    assert result.stopped == "nothing to search"


def test_warm_starts_are_tried_after_the_default() -> None:
    warm = {**space().default_point(), "SloRisk": 5.0}
    result = search(space(), hill, seed=3, budget=SMALL, starts=[warm])
    assert result.trials[1].point == warm


def test_progress_reports_every_batch() -> None:
    seen: list[tuple[int, int, float]] = []
    search(space(), hill, seed=3, budget=SMALL, progress=lambda *state: seen.append(state))
    assert [done for done, _, _ in seen] == [8, 16, 24, 32, 40]
    assert seen[-1][2] == run().best.value


def _trial(number: int, slo_risk: float, slices: tuple[float, ...]) -> Trial:
    return Trial(number, {**space().default_point(), "SloRisk": slo_risk}, Score(sum(slices) / len(slices), slices))


def test_within_one_error_the_nearest_to_the_default_is_taken() -> None:
    best = _trial(1, 9.0, (0.92, 0.97, 0.91, 0.98))
    near = _trial(2, 1.5, (0.96, 0.92, 0.96, 0.92))  # behind by half a point, with an error of over two
    far_behind = _trial(3, 1.1, (0.82, 0.87, 0.81, 0.88))  # paired: behind by ten points in every slice
    assert nearest_within_one_error(space(), [best, near, far_behind]).number == 2


def test_the_default_stays_where_nothing_is_gained() -> None:
    default = _trial(0, 1.0, (0.9, 0.95, 0.9, 0.95))
    lucky = _trial(1, 4.0, (0.96, 0.9, 0.95, 0.9))
    assert nearest_within_one_error(space(), [default, lucky]).number == 0


def test_a_bound_that_the_winner_lies_on_is_named() -> None:
    def more_is_better(points: Sequence[Point], leader: Trial | None) -> Iterable[Score]:
        return [Score(point["DecodeWait"], (point["DecodeWait"],) * 2) for point in points]

    top = {**space().default_point(), "DecodeWait": 20.0}
    assert search(space(), more_is_better, seed=1, budget=SMALL, starts=[top]).touched == ("DecodeWait",)


def test_a_trial_in_which_a_class_loses_too_much_counts_as_none() -> None:
    def sacrifice(points: Sequence[Point], leader: Trial | None) -> Iterable[Score]:
        """More SloRisk is better for all and worse for the second class."""
        for point in points:
            risk = min(point["SloRisk"], 20.0)
            yield Score(0.5 + 0.02 * risk, (0.5 + 0.02 * risk,) * 4, (0.5, 0.9 - 0.01 * risk))

    free = search(space(), sacrifice, seed=3, budget=SMALL)
    limits = (0.4, 0.84)
    bound = search(space(), sacrifice, seed=3, budget=SMALL, limits=limits)
    assert free.best.point["SloRisk"] > 15
    assert 4 < bound.best.point["SloRisk"] <= 6.0 + 1e-9
    assert bound.best == best_of(bound.trials, limits)
    # The sampler was told: it looks within the limit more often than without one.
    asked = [sum(t.point["SloRisk"] <= 6 for t in found.trials[8:]) for found in (free, bound)]
    assert asked[1] > asked[0]


def test_limits_that_the_start_misses_are_reached() -> None:
    """The default misses the limit by far; every step towards it counts as a gain, though goodput falls."""

    def costly(points: Sequence[Point], leader: Trial | None) -> Iterable[Score]:
        for point in points:
            risk = min(point["SloRisk"], 20.0)
            yield Score(0.9 - 0.02 * risk, (0.9 - 0.02 * risk,) * 4, (0.9, 0.3 + 0.05 * risk))

    best = search(space(), costly, seed=3, budget=replace(SMALL, patience=2), limits=(0.0, 0.6)).best
    assert best.score.classes[1] >= 0.6
    # Where nothing keeps them, the nearest is taken.
    far = search(space(), costly, seed=3, budget=SMALL, limits=(0.0, 1.9))
    assert far.best == max(far.trials, key=lambda t: (t.score.classes[1], -t.number))


def test_what_is_not_shown_to_be_better_stays_at_the_anchor() -> None:
    def all_equal(points: Sequence[Point], leader: Trial | None) -> Iterable[Score]:
        return [Score(0.5, (0.5, 0.5)) for _ in points]

    now = {**space().default_point(), "SloRisk": 7.0}
    stays = search(space(), all_equal, seed=3, budget=SMALL, starts=[now], anchor=now)
    assert stays.chosen.point == now
    found = search(space(), hill, seed=3, budget=SMALL, starts=[now], anchor=now)
    free = search(space(), hill, seed=3, budget=SMALL, starts=[now])
    assert found.trials == free.trials
    assert space().distance(found.chosen.point, now) <= space().distance(free.chosen.point, now)


def test_what_the_race_gave_up_is_neither_best_nor_chosen() -> None:
    whole = _trial(0, 1.0, (0.8, 0.8, 0.8, 0.8))
    lost = Trial(1, {**space().default_point(), "SloRisk": 2.0}, Score(0.9, (0.9,), whole=False))
    assert best_of([whole, lost]).number == 0
    assert nearest_within_one_error(space(), [whole, lost]).number == 0


def test_the_front_holds_what_nothing_beats_in_all_three() -> None:
    numbers = [(0.9, 500.0, 8.0), (0.8, 300.0, 8.0), (0.8, 400.0, 8.0), (0.7, 900.0, 2.0), (0.9, 500.0, 8.0)]
    trials = [
        Trial(k, {}, Score(0.0, (), goodput_frac=g, ttft_p99_ms=tail, moved_bytes=moved))
        for k, (g, tail, moved) in enumerate(numbers)
    ]
    lost = Trial(9, {}, Score(0.0, (), whole=False, goodput_frac=1.0))
    assert [t.number for t in front([*trials, lost])] == [0, 1, 3]
