"""The simple families: each with its own knobs and the same budget as the joint score, and the choice of a winner.

Bookings, node speeds and views are the same for every family; a simple rule gets its same-rack variants, where it
heeds capacity reserve multipliers and quantile levels, the moment at which D is chosen, and its own parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policies.families.registry import BY_NAME
from policies.policy import SAME_RACK, Policy
from policies.search.cases import CaseScore, search_score
from policies.search.moves import PARAMS
from policies.search.space import Freedom, Point, Space, family_space
from policies.search.trials import shortfalls, within_one_error


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
    score = search_score(scores)
    return Arm(name, policy, score.value, score.slices, tuple(scores))


def variants(family: str, base: Policy, racks: int) -> dict[str, Policy]:
    """Name -> plain form of one simple family, from the classes, reserves and rules of `base`.

    D is chosen when the family does it, unless `base` does it at another moment than its arrival: then the pool does.
    A name is `family` or `family/same_rack`; each is an arm of its own.
    """
    described = BY_NAME[family]
    modes = SAME_RACK if racks > 1 and described.racks else SAME_RACK[:1]
    moment = described.moment if base.decode_moment == "arrival" else base.decode_moment
    plain = replace(
        base, family=family, params=(), decode_moment=moment, temperature_p_s=0.0, temperature_d_s=0.0,
        draws_p=0, draws_d=0, hysteresis_s=0.0, dwell_s=0.0,
    )  # fmt: skip
    return {family if mode == "none" else f"{family}/{mode}": replace(plain, same_rack=mode) for mode in modes}


def family_spaces(
    families: Sequence[str], base: Policy, racks: int, levels: Sequence[float], freedom: Freedom
) -> dict[str, Space]:
    """Name of `variants` -> what its search moves."""
    return {
        name: family_space(plain, {}, levels, freedom)
        for family in families
        for name, plain in variants(family, base, racks).items()
    }


def first_points(space: Space) -> list[Point]:
    """Where a family's search begins beside its default: each parameter at the values that its authors name."""
    tried = {PARAMS + knob.name: knob.tried for knob in BY_NAME[space.default.family].knobs}
    default = space.default_point()
    return [{**default, k.name: k.raw(value)} for k in space.knobs for value in tried.get(k.name, ())]


def choose_winner(arms: Sequence[Arm], limits: Sequence[float] = ()) -> Arm:
    """The arm to test: the first in order that the best does not lead by more than one standard error on train.

    Order the arms by preference (what runs now, the default policy, simple families, what was searched): a more
    complicated policy must have shown its lead. Arms under a class's limit are left out; where all are, as may be where
    the router cannot run the incumbent any more, those stay that miss one by the least.
    """
    by_arm = [missed(a, limits) for a in arms]
    able = [a for a, short in zip(arms, by_arm, strict=True) if short == min(by_arm)]
    best = max(able, key=lambda a: a.value)
    return next(a for a in able if within_one_error(best.slices, a.slices))


def missed(arm: Arm, limits: Sequence[float]) -> float:
    """The most by which a class is under its least hard goodput on the train days; 0 = all are kept."""
    return max(0.0, *shortfalls(search_score(arm.train).classes, limits)) if limits else 0.0
