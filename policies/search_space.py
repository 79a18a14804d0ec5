"""What the search may move: knobs with bounds, what stays at its default because no traffic can tell, and distances.

A point is a plain mapping knob -> float. Knobs are searched on a log scale; a knob with `off_below` is switched off
(its value is 0) below that, so that a term may leave the score. `apply` turns a point into a policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from features.errors import PolicyError
from policies.policy import Policy, Weights

Point = Mapping[str, float]

WEIGHTS = {
    "PrefillCompute": 1,
    "TransferTime": 2,
    "DecodeWait": 3,
    "ProjectedKVPressure": 4,
    "SloRisk": 5,
    "PrefixBenefit": 6,
    "NeighbourHarm": 7,
    "Crowd": 8,
}
"""Place of each searched weight among a class's nine. PrefillWait (place 0) is 1 and fixes the scale."""

QUANTILE = "quantile_step"
RESERVE = "reserve_multiplier"
TEMPERATURE_P = "temperature_p_s"
TEMPERATURE_D = "temperature_d_s"


@dataclass(frozen=True, slots=True)
class Knob:
    """One searched number, log-uniform in [low, high]; below `off_below` it means 0. `whole`: integers, linear."""

    name: str
    low: float
    high: float
    default: float
    off_below: float = 0.0
    whole: bool = False

    def value(self, raw: float) -> float:
        """What a raw coordinate means."""
        return 0.0 if 0 < raw < self.off_below else raw

    def raw(self, value: float) -> float:
        """The coordinate of a value, clipped to the bounds; all that is off has one coordinate."""
        if self.off_below > 0 and value < self.off_below:
            return math.sqrt(self.low * self.off_below)
        return min(self.high, max(self.low, value))

    def step(self, raw: float) -> float:
        """Distance from the default as a part of the knob's range."""
        here, there = self.raw(self.value(raw)), self.default
        if self.whole:
            return (here - there) / max(1.0, self.high - self.low)
        return math.log(here / there) / math.log(self.high / self.low)


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

    def distance(self, point: Point) -> float:
        """Euclidean distance from the default, every knob's range being 1."""
        return math.sqrt(sum(k.step(point[k.name]) ** 2 for k in self.knobs))


def space_around(default: Policy, frozen: Mapping[str, str], levels: Sequence[float]) -> Space:
    """The space of shared weights around a policy.

    `frozen`: knob -> reason (see `search_identify.frozen_knobs`); `levels`: ascending quantile levels of the length
    table. The weights of the first class stand for all. Bounds grow where the default lies outside of them.
    """
    base = _unit_scale(default)
    shared = base.classes[0]
    wanted = [_bounded(Knob(name, *_BOUNDS[name]), shared.weights[place]) for name, place in WEIGHTS.items()]
    low_steps, high_steps = _quantile_steps(base, levels)
    reasons = dict(frozen)
    if low_steps == high_steps:
        reasons.setdefault(QUANTILE, "the length law has one usable level")
    if all(c.reserve_blocks == 0 for c in base.classes):
        reasons.setdefault(RESERVE, "the default reserve is 0 blocks")
    wanted += [
        Knob(QUANTILE, low_steps, high_steps, 0.0, whole=True),
        Knob(RESERVE, 0.25, 4.0, 1.0),
        _bounded(Knob(TEMPERATURE_P, *_BOUNDS[TEMPERATURE_P]), base.temperature_p_s),
        _bounded(Knob(TEMPERATURE_D, *_BOUNDS[TEMPERATURE_D]), base.temperature_d_s),
    ]
    knobs = tuple(k for k in wanted if k.name not in reasons)
    kept = tuple((k.name, reasons[k.name]) for k in wanted if k.name in reasons)
    return Space(base, knobs, kept, tuple(levels))


def apply(space: Space, point: Point) -> Policy:
    """The policy of a point: shared weights; quantile steps and reserve multiplier are relative to each class."""
    unknown = set(point) ^ {k.name for k in space.knobs}
    if unknown:
        raise PolicyError("a point names exactly the knobs of its space", value=sorted(unknown))
    value = {k.name: k.value(point[k.name]) for k in space.knobs}
    classes = []
    for cls in space.default.classes:
        weights = list(cls.weights)
        for name, place in WEIGHTS.items():
            weights[place] = value.get(name, space.default.classes[0].weights[place])
        classes.append(
            replace(
                cls,
                weights=cast(Weights, tuple(weights)),
                quantile=shifted_level(space.levels, cls.quantile, round(value.get(QUANTILE, 0.0))),
                reserve_blocks=cls.reserve_blocks * value.get(RESERVE, 1.0),
            )
        )
    return replace(
        space.default,
        classes=tuple(classes),
        temperature_p_s=value.get(TEMPERATURE_P, space.default.temperature_p_s),
        temperature_d_s=value.get(TEMPERATURE_D, space.default.temperature_d_s),
    )


def point_of(space: Space, policy: Policy) -> dict[str, float]:
    """The point nearest to a policy of the same family and classes (a warm start): class means within the bounds."""
    if policy.family != space.default.family or len(policy.classes) != len(space.default.classes):
        raise PolicyError(
            "a warm start has the family and the classes of the search",
            value=(policy.family, len(policy.classes)),
            hint=f"{space.default.family} with {len(space.default.classes)} classes",
        )
    warm = _unit_scale(policy)
    count = len(warm.classes)
    found = {n: sum(c.weights[place] for c in warm.classes) / count for n, place in WEIGHTS.items()}
    found[TEMPERATURE_P], found[TEMPERATURE_D] = warm.temperature_p_s, warm.temperature_d_s
    pairs = list(zip(warm.classes, space.default.classes, strict=True))
    reserves = [w.reserve_blocks / d.reserve_blocks for w, d in pairs if d.reserve_blocks > 0]
    found[RESERVE] = sum(reserves) / len(reserves) if reserves else 1.0
    steps = [_level_at(space.levels, w.quantile) - _level_at(space.levels, d.quantile) for w, d in pairs]
    found[QUANTILE] = float(round(sum(steps) / len(steps)))
    return {k.name: k.raw(found[k.name]) for k in space.knobs}


def shifted_level(levels: Sequence[float], level: float, steps: int) -> float:
    """The level `steps` places further in the table, at its end at most; a level that is not in the table stays."""
    if steps == 0:
        return level
    return levels[min(len(levels) - 1, max(0, _level_at(levels, level) + steps))]


# low, high, default (set later), off_below. Weights of times have no unit; the others are seconds.
_BOUNDS: dict[str, tuple[float, float, float, float]] = {
    "PrefillCompute": (0.02, 20.0, 1.0, 0.0),
    "TransferTime": (0.02, 20.0, 1.0, 0.0),
    "DecodeWait": (0.02, 20.0, 1.0, 0.0),
    "ProjectedKVPressure": (0.005, 30.0, 1.0, 0.02),
    "SloRisk": (0.005, 30.0, 1.0, 0.02),
    "PrefixBenefit": (0.02, 20.0, 1.0, 0.05),
    "NeighbourHarm": (2.5e-4, 1.0, 1.0, 1e-3),
    "Crowd": (0.005, 10.0, 1.0, 0.02),
    TEMPERATURE_P: (2.5e-5, 1.0, 1.0, 1e-4),
    TEMPERATURE_D: (2.5e-6, 0.1, 1.0, 1e-5),
}


def _bounded(knob: Knob, default: float) -> Knob:
    """The knob with its default, and bounds wide enough to hold it."""
    if default > 0 or knob.off_below > 0:
        wide = replace(knob, low=min(knob.low, default) if default > 0 else knob.low, high=max(knob.high, default))
        if 0 < default < wide.off_below:
            wide = replace(wide, off_below=default, low=default / 4)
        return replace(wide, default=wide.raw(default))
    raise PolicyError(f"`{knob.name} > 0` must hold in a policy that the search starts from", value=default)


def _quantile_steps(policy: Policy, levels: Sequence[float]) -> tuple[int, int]:
    """Steps that change some class's level, down to the median and at most two either way."""
    floor = next((i for i, level in enumerate(levels) if level >= 0.5), 0)
    at = [_level_at(levels, c.quantile) for c in policy.classes]
    return max(-2, min(0, floor - min(at))), min(2, max(0, len(levels) - 1 - max(at)))


def _level_at(levels: Sequence[float], level: float) -> int:
    return min(range(len(levels)), key=lambda i: abs(levels[i] - level)) if levels else 0


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
    )
