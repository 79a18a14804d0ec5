"""A night's searches in planted worlds: classes that want other weights, classes that do not, a family that is best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from policies.families.dynamo_cost import CostFn, Params
from policies.families.params import to_row
from policies.policy import ClassPolicy, Policy, default_policy
from policies.search.candidates import PER_CLASS, SEARCHED, Candidates, find_candidates, train_cases
from policies.search.cases import Case, CaseScore
from policies.search.families import choose_winner, missed
from policies.search.plan import MORE, SHARED, WIDER, planned_trials
from policies.search.search import Budget
from policies.search.space import Space, space_around
from policies.search.workers import WorkerPool
from tests.policies.stub import StubFactory

DEFAULT = default_policy((ClassPolicy("chat"), ClassPolicy("batch")))
BUDGET = Budget(trials=40, batch=8, startup=8, patience=9)
ALL_BUT_TWO = (
    "PrefillCompute", "TransferTime", "ProjectedKVPressure", "PrefixBenefit", "NeighbourHarm", "Crowd",
    "temperature_p_s", "temperature_d_s", "quantile_step",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class World:
    """Goodput of a class falls with the distance of its SloRisk (the weight at `place`) from where it is best."""

    best: Mapping[str, float]
    families: Mapping[str, float] = field(default_factory=dict)
    place: int = 5
    slope: Mapping[str, float] = field(default_factory=lambda: {"chat": 0.03, "batch": 0.03})

    def build(self) -> World:
        return self

    def __call__(self, policy: Policy, case: Case) -> CaseScore:
        found = StubFactory(noise=0.01, weights_matter=False)(policy, case)
        off = [abs(math.log(max(c.weights[self.place], 1e-4) / self.best[c.name])) for c in policy.classes]
        level = self.families.get(policy.family, 0.7)
        by_class = {c.name: level - self.slope[c.name] * o for c, o in zip(policy.classes, off, strict=True)}
        if policy.family != "routecal":
            by_class = dict.fromkeys(by_class, level)
        mean = float(np.mean(list(by_class.values())))
        shared = [s - found.soft for s in found.slices]
        return replace(
            found, soft=mean, goodput_frac=mean, slices=tuple(mean + s for s in shared),
            outcome=replace(found.outcome, goodput_frac_by_class=by_class),
        )  # fmt: skip


def space(default: Policy = DEFAULT) -> Space:
    return space_around(default, dict.fromkeys(ALL_BUT_TWO, "test"), (0.9,))


def night(
    world: World,
    budget: Budget = BUDGET,
    families: tuple[str, ...] = (),
    incumbent: Policy = replace(DEFAULT, family="lowest_utilisation"),  # noqa: B008  policies are frozen
    **more: object,
) -> Candidates:
    with WorkerPool(world, 1) as pool:
        return find_candidates(
            pool, space(), train_cases(["d1", "d2"]), incumbent=incumbent,
            families=families, racks=1, seed=1, budget=budget, **more,  # type: ignore[arg-type]
        )  # fmt: skip


@dataclass(slots=True)
class Spying:
    """The world; `seen`: every policy that it was asked for."""

    world: World
    seen: list[Policy] = field(default_factory=list)

    def build(self) -> Spying:
        return self

    def __call__(self, policy: Policy, case: Case) -> CaseScore:
        self.seen.append(policy)
        return self.world(policy, case)


LIKE = {"routecal": 0.9}


def test_classes_that_want_opposite_weights_get_their_own() -> None:
    found = night(World({"chat": 6.0, "batch": 0.1}, LIKE))
    assert found.winner == PER_CLASS
    chat, batch = (c.weights[5] for c in found.policy.classes)
    assert chat > 3 * batch


def test_classes_that_want_the_same_stay_together() -> None:
    found = night(World({"chat": 4.0, "batch": 4.0}, LIKE))
    assert found.winner == SEARCHED
    assert len({c.weights for c in found.policy.classes}) == 1


def test_where_a_simple_family_is_best_it_wins() -> None:
    found = night(World({"chat": 1.0, "batch": 1.0}, {"routecal": 0.8, "lmetric": 0.9}), families=("lmetric",))
    assert found.winner == "lmetric"


def test_a_bound_that_the_winner_touches_is_widened_once() -> None:
    found = night(World({"chat": 200.0, "batch": 200.0}, LIKE))
    reports = found.summary["searches"]
    assert reports[SHARED]["touched_bounds"] == ["SloRisk"]
    assert reports[WIDER]["chosen_point"]["SloRisk"] > 60
    assert found.policy.classes[0].weights[5] > 60
    calm = night(World({"chat": 3.0, "batch": 3.0}, LIKE))
    assert WIDER not in calm.summary["searches"]


def with_risk_weights(chat: float, batch: float) -> Policy:
    """The default with these weights of SloRisk."""
    weights = DEFAULT.classes[0].weights
    rows = [(*weights[:5], risk, *weights[6:]) for risk in (chat, batch)]
    return replace(DEFAULT, classes=tuple(replace(c, weights=w) for c, w in zip(DEFAULT.classes, rows, strict=True)))  # type: ignore[arg-type]


def test_every_search_tries_what_runs_now() -> None:
    # Two trials a search: the default and one more, which nobody draws at random.
    few = Budget(trials=2, batch=2, startup=2)
    world = World({"chat": 17.25, "batch": 17.25}, LIKE)
    found = night(world, few, incumbent=with_risk_weights(17.25, 17.25))
    assert found.summary["searches"][SHARED]["chosen_point"]["SloRisk"] == 17.25
    opposite = World({"chat": 4.0, "batch": 0.25}, LIKE)
    own = night(opposite, few, incumbent=with_risk_weights(4.0, 0.25)).summary["searches"][PER_CLASS]["chosen_point"]
    assert own["chat/SloRisk"] > own["batch/SloRisk"]
    tuned = replace(DEFAULT, family="dynamo_cost", params=to_row(Params(prefill=CostFn(overlap_score_credit=2.5))))
    spy = Spying(world)
    night(spy, few, families=("dynamo_cost",), incumbent=tuned)  # type: ignore[arg-type]
    # As the incumbent's arm, and twice as a trial: of two days at two loads, one of the days may be left out.
    assert sum(policy.params == tuned.params for policy in spy.seen) > 4


def test_weights_stay_where_they_are_without_a_gain() -> None:
    """SloRisk is as good anywhere: what runs now stays, the default does not come back."""
    flat = World({"chat": 1.0, "batch": 1.0}, {"routecal": 0.5, "lmetric": 0.6}, place=0)
    found = night(flat, incumbent=with_risk_weights(4.0, 4.0))
    assert found.summary["searches"][SHARED]["chosen_point"]["SloRisk"] == 4.0
    assert found.summary["searches"][SHARED]["distance_from_incumbent"] == 0.0
    assert night(flat).summary["searches"][SHARED]["distance_from_incumbent"] is None


def test_own_weights_have_the_shared_ones_budget_against_them() -> None:
    reports = night(World({"chat": 6.0, "batch": 0.1}, LIKE)).summary["searches"]
    extra = BUDGET.trials // 3
    assert reports[MORE]["trials"] == reports[SHARED]["trials"] + extra
    assert reports[PER_CLASS]["trials"] == extra


def test_a_limit_keeps_a_class_from_being_sacrificed() -> None:
    """Batch is at its best in the default, which runs now, and chat far from it; without a limit batch pays."""
    world = World({"chat": 60.0, "batch": 1.0}, LIKE, slope={"chat": 0.06, "batch": 0.03})
    free, bound = (night(world, replace(BUDGET, loss=loss), incumbent=DEFAULT) for loss in (None, 0.01))
    paid = [max(c.weights[5] for c in found.policy.classes if c.name == "batch") for found in (free, bound)]
    assert paid[0] > 2
    assert paid[1] <= math.exp(0.01 / 0.03) + 1e-9
    assert free.summary["class_limits"] == {}
    assert bound.summary["class_limits"]["batch"] == pytest.approx(0.89)


def test_an_arm_below_a_limit_cannot_win() -> None:
    """The family has more goodput in all, and less in one class than what runs now may lose."""
    uneven = World({"chat": 60.0, "batch": 1.0}, {"routecal": 0.9, "lmetric": 0.86})
    assert night(uneven, families=("lmetric",), incumbent=DEFAULT).winner != "lmetric"
    found = night(uneven, replace(BUDGET, loss=0.02), families=("lmetric",), incumbent=DEFAULT)
    assert "lmetric" in found.summary["below_class_limits"]
    assert found.winner not in found.summary["below_class_limits"]


def test_where_every_arm_is_below_a_limit_the_nearest_may_win() -> None:
    """As where the router cannot run the incumbent any more: the arm that alone keeps the limits is not there."""
    found = night(World({"chat": 1.0, "batch": 1.0}, {"routecal": 0.9, "lmetric": 0.8}), families=("lmetric",))
    high = (0.95, 0.95)
    assert min(missed(a, high) for a in found.arms) > 0
    winner = choose_winner(found.arms, high)
    assert missed(winner, high) == min(missed(a, high) for a in found.arms)
    assert missed(winner, ()) == 0.0


def test_progress_ends_at_what_was_planned() -> None:
    seen: list[tuple[int, int, float]] = []
    night(World({"chat": 2.0, "batch": 2.0}, LIKE), progress=lambda *state: seen.append(state))
    done, planned = [s[0] for s in seen], {s[1] for s in seen}
    assert done == sorted(done)
    assert planned == {planned_trials(space(), {}, BUDGET)}
    assert done[-1] <= planned.pop()


class KilledError(RuntimeError):
    """The process is gone."""


@dataclass(slots=True)
class Dying:
    """The world, until so many replays are done."""

    world: World
    left: int

    def build(self) -> Dying:
        return self

    def __call__(self, policy: Policy, case: Case) -> CaseScore:
        if self.left == 0:
            raise KilledError
        self.left -= 1
        return self.world(policy, case)


def test_killed_five_times_the_same_candidates(tmp_path: Path) -> None:
    world = World({"chat": 6.0, "batch": 0.1}, LIKE)
    whole = night(world, families=("lmetric",))
    for _ in range(5):
        with pytest.raises(KilledError):
            night(Dying(world, 40), families=("lmetric",), journals=tmp_path)  # type: ignore[arg-type]
    assert night(world, families=("lmetric",), journals=tmp_path) == whole
