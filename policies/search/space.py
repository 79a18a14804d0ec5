"""What a search may move: knobs around a policy, what stays at its default because no traffic can tell, distances.

A point is a plain mapping knob -> coordinate (`policies.search.knobs`); `apply` turns it into a policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from features.errors import PolicyError
from policies.families.params import names, to_row
from policies.families.registry import BY_NAME, params_of
from policies.policy import DECODE_MOMENTS, DecodeMoment, Policy, Weights
from policies.search.knobs import Knob, among, around
from policies.search.moves import (
    DRAWS_D,
    DRAWS_P,
    DWELL,
    HALF_LIFE,
    HYSTERESIS,
    LEASE,
    MOMENT,
    OF_CLASS,
    PARAMS,
    QUANTILE,
    RESERVE,
    TEMPERATURE_D,
    TEMPERATURE_P,
    WEIGHTS,
    level_at,
    moved,
    read,
)

Point: TypeAlias = Mapping[str, float]

DELTA = 8.0
"""A class's weight is at most so many times the shared one, or that part of it."""

# low, high, off_below. Weights of times have no unit; the others are seconds.
_BOUNDS: dict[str, tuple[float, float, float]] = {
    "PrefillCompute": (0.02, 20.0, 0.0),
    "TransferTime": (0.02, 20.0, 0.0),
    "DecodeWait": (0.02, 20.0, 0.0),
    "ProjectedKVPressure": (0.005, 30.0, 0.02),
    "SloRisk": (0.005, 30.0, 0.02),
    "PrefixBenefit": (0.02, 20.0, 0.05),
    "NeighbourHarm": (2.5e-4, 1.0, 1e-3),
    "Crowd": (0.005, 10.0, 0.02),
    TEMPERATURE_P: (2.5e-5, 1.0, 1e-4),
    TEMPERATURE_D: (2.5e-6, 0.1, 1e-5),
    HYSTERESIS: (2.5e-4, 1.0, 1e-3),
    DWELL: (0.025, 60.0, 0.1),
    HALF_LIFE: (0.025, 60.0, 0.1),
    LEASE: (0.5, 600.0, 0.0),
}
_DRAWS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Freedom:
    """What a pool's routers can be told beside weights: `moments` when they can choose D, draws among so many nodes.

    `lease_s`: the pool's own. `sampled`: routers see samples, whose age and rates a policy can deal with.
    """

    moments: tuple[DecodeMoment, ...] = ()
    prefill: int = 1
    decode: int = 1
    sampled: bool = False
    lease_s: float | None = None


NO_FREEDOM = Freedom()


@dataclass(frozen=True, slots=True)
class Space:
    """The knobs of one search around `default`, and what is frozen and why. `levels`: quantile levels of the table."""

    default: Policy
    knobs: tuple[Knob, ...]
    frozen: tuple[tuple[str, str], ...]
    levels: tuple[float, ...]

    def default_point(self) -> dict[str, float]:
        """The point at which `apply` gives the default policy."""
        return {k.name: k.default for k in self.knobs}

    def distance(self, point: Point, other: Point | None = None) -> float:
        """Euclidean distance between points (None = the default), every knob's range being 1."""
        end = self.default_point() if other is None else other
        return math.sqrt(sum(k.apart(point[k.name], end[k.name]) ** 2 for k in self.knobs))


def space_around(
    default: Policy, frozen: Mapping[str, str], levels: Sequence[float], freedom: Freedom = NO_FREEDOM
) -> Space:
    """The space of shared weights and of the router's own knobs around a policy of scored pairs.

    `frozen`: knob -> reason (see `identify.frozen_knobs`); `levels`: ascending quantile levels of the length
    table. The weights of the first class stand for all. Bounds grow where the default lies outside of them.
    """
    base = _unit_scale(default)
    shared = base.classes[0]
    wanted = [around(name, _BOUNDS[name], shared.weights[place]) for name, place in WEIGHTS.items()]
    wanted += _bookings(base, levels)
    wanted += [around(name, _BOUNDS[name], getattr(base, name)) for name in (TEMPERATURE_P, TEMPERATURE_D)]
    wanted += _router(base, freedom)
    return _space(base, wanted, frozen, levels)


def family_space(
    default: Policy, frozen: Mapping[str, str], levels: Sequence[float], freedom: Freedom = NO_FREEDOM
) -> Space:
    """The space of a family that chooses P and D apart: its parameters, bookings where it heeds room, D's moment."""
    family = BY_NAME[default.family]
    places, row = names(family.params), default.params or to_row(params_of(default.family, ()))
    wanted = []
    for knob in family.knobs:
        at = row[places.index(knob.name)]
        if knob.names:
            wanted.append(among(PARAMS + knob.name, tuple(sorted({at, *knob.tried})), at))
        elif knob.low > 0:
            wanted.append(around(PARAMS + knob.name, (knob.low, knob.high, 0.0), at))
        else:
            wanted.append(around(PARAMS + knob.name, (knob.high / 1000, knob.high, knob.high / 250), at))
    if family.capacity:
        wanted += _bookings(default, levels)
    wanted += [k for k in _router(default, freedom) if k.name == MOMENT and not family.router]
    return _space(default, wanted, frozen, levels)


def delta_space(shared: Policy, frozen: Mapping[str, str], levels: Sequence[float]) -> Space:
    """The space of weights of single classes around shared ones, as multipliers; weights that are 0 stay so."""
    wanted = [
        Knob(f"{c.name}{OF_CLASS}{weight}", 1 / DELTA, DELTA, 1.0)
        for c in shared.classes
        for weight, place in WEIGHTS.items()
        if c.weights[place] > 0 and weight not in frozen
    ]
    return Space(shared, tuple(wanted) if len(shared.classes) > 1 else (), (), tuple(levels))


def widened(space: Space, touched: Sequence[str], factor: float = 8.0) -> Space:
    """The space with room beyond the bounds of these knobs."""
    return replace(space, knobs=tuple(k.wider(factor) if k.name in touched else k for k in space.knobs))


def apply(space: Space, point: Point) -> Policy:
    """The policy of a point: shared weights; quantile steps and reserve multiplier are relative to each class."""
    unknown = set(point) ^ {k.name for k in space.knobs}
    if unknown:
        raise PolicyError("a point names exactly the knobs of its space", value=sorted(unknown))
    policy = space.default
    for knob in space.knobs:
        if point[knob.name] != knob.default:
            policy = moved(policy, knob.name, knob.value(point[knob.name]), space.levels)
    return policy


def point_of(space: Space, policy: Policy) -> dict[str, float]:
    """The point nearest to a policy of the same family and classes (a warm start): class means within the bounds."""
    if policy.family != space.default.family or len(policy.classes) != len(space.default.classes):
        raise PolicyError(
            "a warm start has the family and the classes of the search",
            value=(policy.family, len(policy.classes)),
            hint=f"{space.default.family} with {len(space.default.classes)} classes",
        )
    warm = _unit_scale(policy)
    return {k.name: k.raw(read(warm, k.name, space.default, space.levels)) for k in space.knobs}


def start_at(space: Space, policy: Policy) -> list[Point]:
    """`point_of` as a point to begin at; none where the space cannot hold such a policy or begins there anyway."""
    default = space.default
    alike = (policy.family, policy.same_rack) == (default.family, default.same_rack)
    scales = {c.weights[0] for c in policy.classes}
    weighed = len(scales) == 1 and min(scales) > 0
    if not alike or not weighed or [c.name for c in policy.classes] != [c.name for c in default.classes]:
        return []
    point = point_of(space, policy)
    return [] if point == space.default_point() else [point]


def _space(base: Policy, wanted: Sequence[Knob], frozen: Mapping[str, str], levels: Sequence[float]) -> Space:
    reasons = dict(frozen)
    low, high = _quantile_steps(base, levels)
    if low == high:
        reasons.setdefault(QUANTILE, "the length law has one usable level")
    if all(c.reserve_blocks == 0 for c in base.classes):
        reasons.setdefault(RESERVE, "the default reserve is 0 blocks")
    kept = tuple((k.name, reasons[k.name]) for k in wanted if k.name in reasons)
    return Space(base, tuple(k for k in wanted if k.name not in reasons), kept, tuple(levels))


def _bookings(base: Policy, levels: Sequence[float]) -> list[Knob]:
    low, high = _quantile_steps(base, levels)
    return [Knob(QUANTILE, low, high, 0.0, whole=True), Knob(RESERVE, 0.25, 4.0, 1.0)]


def _router(base: Policy, freedom: Freedom) -> list[Knob]:
    """Knobs of the router itself; where there is one way only there is none."""
    found = []
    if len(freedom.moments) > 1:
        places = tuple(sorted(float(DECODE_MOMENTS.index(m)) for m in {*freedom.moments, base.decode_moment}))
        found.append(among(MOMENT, places, float(DECODE_MOMENTS.index(base.decode_moment))))
    for name, nodes in ((DRAWS_P, freedom.prefill), (DRAWS_D, freedom.decode)):
        now = float(getattr(base, name))
        choices = tuple(sorted({0.0, now, *(float(n) for n in _DRAWS if n < nodes)}))
        if len(choices) > 1:
            found.append(among(name, choices, now))
    if freedom.sampled:
        found += [around(name, _BOUNDS[name], getattr(base, name)) for name in (HYSTERESIS, DWELL, HALF_LIFE)]
        lease_s = base.lease_s or freedom.lease_s
        if lease_s is not None:
            found.append(around(LEASE, _BOUNDS[LEASE], lease_s))
    return found


def _quantile_steps(policy: Policy, levels: Sequence[float]) -> tuple[int, int]:
    """Steps that change some class's level, down to the median and at most two either way."""
    floor = next((i for i, level in enumerate(levels) if level >= 0.5), 0)
    at = [level_at(levels, c.quantile) for c in policy.classes]
    return max(-2, min(0, floor - min(at))), min(2, max(0, len(levels) - 1 - max(at)))


def _unit_scale(policy: Policy) -> Policy:
    """The same policy with w1 = 1: weights and temperatures are divided by w1, which moves no choice."""
    scale = policy.classes[0].weights[0]
    if any(c.weights[0] != scale for c in policy.classes) or scale <= 0:
        raise PolicyError("PrefillWait's weight is above 0 and equal in all classes", value=scale)
    if scale == 1.0:
        return policy
    classes = tuple(replace(c, weights=cast(Weights, tuple(w / scale for w in c.weights))) for c in policy.classes)
    return replace(
        policy,
        classes=classes,
        temperature_p_s=policy.temperature_p_s / scale,
        temperature_d_s=policy.temperature_d_s / scale,
        hysteresis_s=policy.hysteresis_s / scale,
    )
