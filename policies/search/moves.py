"""What a knob's name means in a policy: how it is read there and how it is set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import cast

from policies.families.params import names, to_row
from policies.families.registry import params_of
from policies.policy import DECODE_MOMENTS, Policy, Weights

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
DRAWS_P = "draws_p"
DRAWS_D = "draws_d"
HYSTERESIS = "hysteresis_s"
DWELL = "dwell_s"
HALF_LIFE = "half_life_s"
LEASE = "lease_s"
MOMENT = "decode_moment"
PARAMS = "params."
"""Before the name of a family's own parameter."""

OF_CLASS = "/"
"""Between a class and the weight that is multiplied for it alone."""

_SECONDS = (TEMPERATURE_P, TEMPERATURE_D, HYSTERESIS, DWELL, HALF_LIFE, LEASE)
_COUNTS = (DRAWS_P, DRAWS_D)


def moved(policy: Policy, name: str, value: float, levels: Sequence[float]) -> Policy:
    """The policy with one knob at a value. Quantile steps, the reserve and a class's weights move from where they are.

    `levels`: ascending quantile levels of the length table.
    """
    if name in WEIGHTS:
        return _weighted(policy, WEIGHTS[name], lambda _: value)
    if name == QUANTILE:
        classes = [replace(c, quantile=shifted_level(levels, c.quantile, round(value))) for c in policy.classes]
        return replace(policy, classes=tuple(classes))
    if name == RESERVE:
        return replace(
            policy, classes=tuple(replace(c, reserve_blocks=c.reserve_blocks * value) for c in policy.classes)
        )
    if name in _SECONDS:
        return replace(policy, **{name: value})  # type: ignore[arg-type]  # a field of seconds
    if name in _COUNTS:
        return replace(policy, **{name: round(value)})  # type: ignore[arg-type]  # a field that counts
    if name == MOMENT:
        return replace(policy, decode_moment=DECODE_MOMENTS[round(value)])
    if name.startswith(PARAMS):
        row = list(policy.params or to_row(params_of(policy.family, ())))
        row[_place(policy, name)] = value
        return replace(policy, params=tuple(row))
    of, weight = name.split(OF_CLASS)
    return _weighted(policy, WEIGHTS[weight], lambda old: old * value, only=of)


def read(policy: Policy, name: str, base: Policy, levels: Sequence[float]) -> float:
    """A knob's value in a policy, by class means; steps, multipliers and a lease of None are relative to `base`."""
    pairs = list(zip(policy.classes, base.classes, strict=True))
    if name in WEIGHTS:
        return fmean(c.weights[WEIGHTS[name]] for c in policy.classes)
    if name == QUANTILE:
        steps = [level_at(levels, c.quantile) - level_at(levels, b.quantile) for c, b in pairs]
        return float(round(fmean(steps)))
    if name == RESERVE:
        ratios = [c.reserve_blocks / b.reserve_blocks for c, b in pairs if b.reserve_blocks > 0]
        return fmean(ratios) if ratios else 1.0
    if name == LEASE:
        return float(policy.lease_s if policy.lease_s is not None else base.lease_s or 0.0)
    if name in (*_SECONDS, *_COUNTS):
        return float(getattr(policy, name))
    if name == MOMENT:
        return float(DECODE_MOMENTS.index(policy.decode_moment))
    if name.startswith(PARAMS):
        return (policy.params or to_row(params_of(policy.family, ())))[_place(policy, name)]
    of, weight = name.split(OF_CLASS)
    old = next(b.weights[WEIGHTS[weight]] for _, b in pairs if b.name == of)
    return next(c.weights[WEIGHTS[weight]] for c, _ in pairs if c.name == of) / old if old > 0 else 1.0


def shifted_level(levels: Sequence[float], level: float, steps: int) -> float:
    """The level `steps` places further in the table, at its end at most; a level that is not in the table stays."""
    if steps == 0:
        return level
    return levels[min(len(levels) - 1, max(0, level_at(levels, level) + steps))]


def level_at(levels: Sequence[float], level: float) -> int:
    """Place of the level in the table that is nearest."""
    return min(range(len(levels)), key=lambda i: abs(levels[i] - level)) if levels else 0


def _weighted(policy: Policy, place: int, weight: Callable[[float], float], only: str | None = None) -> Policy:
    """The policy with another weight at a place, made of the old one; in one class `only`, or in all."""
    classes = []
    for c in policy.classes:
        weights = list(c.weights)
        if only is None or c.name == only:
            weights[place] = weight(weights[place])
        classes.append(replace(c, weights=cast(Weights, tuple(weights))))
    return replace(policy, classes=tuple(classes))


def _place(policy: Policy, name: str) -> int:
    return names(type(params_of(policy.family, policy.params))).index(name.removeprefix(PARAMS))
