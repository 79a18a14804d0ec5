"""The simple families on the same train traffic, each with its own few knobs in a grid, and the choice of a winner.

Bookings, node speeds and views are the same for every family; a simple rule gets its same-rack variants, where it
filters by capacity reserve multipliers and quantile levels, and its own knobs one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policies.families.family import Family
from policies.families.params import Row, names, to_row
from policies.families.registry import BY_NAME
from policies.policy import SAME_RACK, Policy
from policies.search_cases import Case, CaseScore, search_scores
from policies.search_space import shifted_level
from policies.search_trials import within_one_error
from policies.search_workers import WorkerPool

RESERVE_MULTIPLIERS = (1.0, 0.5, 2.0)
QUANTILE_STEPS = (0, -1)


@dataclass(frozen=True, slots=True)
class Arm:
    """A policy that stands in the table under a name, with its train scores."""

    name: str
    policy: Policy
    value: float
    slices: tuple[float, ...]
    train: tuple[CaseScore, ...]


def arm(name: str, policy: Policy, scores: Sequence[CaseScore]) -> Arm:
    """Name a policy together with its train scores."""
    value, slices = search_scores(scores)
    return Arm(name, policy, value, slices, tuple(scores))


def variants(family: str, base: Policy, racks: int, levels: Sequence[float]) -> dict[str, list[Policy]]:
    """Name -> grid of one simple family, from the classes, reserves and rules of `base`. The first is the plain form.

    D is chosen when the family does it, unless `base` does it at another moment than its arrival: then the pool does.
    A name is `family` or `family/same_rack`; each is an arm of its own, the grid behind it is its knobs.
    """
    described = BY_NAME[family]
    modes = SAME_RACK if racks > 1 and described.racks else SAME_RACK[:1]
    grid: dict[str, list[Policy]] = {}
    for mode in modes:
        name = family if mode == "none" else f"{family}/{mode}"
        moment = described.moment if base.decode_moment == "arrival" else base.decode_moment
        own = replace(base, family=family, params=(), decode_moment=moment)
        plain = replace(own, same_rack=mode, temperature_p_s=0.0, temperature_d_s=0.0)
        knobs = [(m, s) for m in RESERVE_MULTIPLIERS for s in QUANTILE_STEPS] if described.capacity else [(1.0, 0)]
        found = [_with_knobs(plain, multiplier, steps, levels) for multiplier, steps in knobs]
        found += [replace(plain, params=params) for params in _tried(described)]
        grid[name] = list(dict.fromkeys(found))
    return grid


def _tried(family: Family) -> list[Row]:
    """Rows of parameters, each with one knob away from its default."""
    places, default = names(family.params), to_row(family.params())
    rows = []
    for knob in family.knobs:
        at = places.index(knob.name)
        rows += [(*default[:at], value, *default[at + 1 :]) for value in knob.tried]
    return rows


def _with_knobs(policy: Policy, multiplier: float, steps: int, levels: Sequence[float]) -> Policy:
    classes = tuple(
        replace(c, reserve_blocks=c.reserve_blocks * multiplier, quantile=shifted_level(levels, c.quantile, steps))
        for c in policy.classes
    )
    return replace(policy, classes=classes)


def best_variants(
    pool: WorkerPool, families: Sequence[str], base: Policy, racks: int, levels: Sequence[float], cases: Sequence[Case]
) -> list[Arm]:
    """One arm a name of `variants`: its best grid point on the train cases (equals: the earlier in the grid)."""
    named = [(name, p) for family in families for name, g in variants(family, base, racks, levels).items() for p in g]
    best: dict[str, Arm] = {}
    for (name, policy), scores in zip(named, pool.by_policy([p for _, p in named], cases), strict=True):
        found = arm(name, policy, scores)
        if name not in best or found.value > best[name].value:
            best[name] = found
    return list(best.values())


def choose_winner(arms: Sequence[Arm]) -> Arm:
    """The arm to test: the first in order that the best does not lead by more than one standard error on train.

    Order the arms by preference (what runs now, the default policy, simple families, what was searched): a more
    complicated policy must have shown its lead.
    """
    best = max(arms, key=lambda a: a.value)
    return next(a for a in arms if within_one_error(best.slices, a.slices))
