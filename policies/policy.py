"""What decides: a family and its numbers. The published form of it is `policies.policy_file`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

from features.errors import PolicyError
from models.portable.estimators import RiskSigma
from policies.risk import GRID_POINTS, risk_table

Unknown: TypeAlias = Literal["worst", "exclude"]
WhenFull: TypeAlias = Literal["queue", "reject"]
SameRack: TypeAlias = Literal["none", "prefill_first", "decode_first"]
DecodeMoment: TypeAlias = Literal["arrival", "decode_first", "handoff", "recheck"]
Weights: TypeAlias = tuple[float, ...]

UNKNOWN: tuple[Unknown, ...] = ("worst", "exclude")
WHEN_FULL: tuple[WhenFull, ...] = ("queue", "reject")
SAME_RACK: tuple[SameRack, ...] = ("none", "prefill_first", "decode_first")
DECODE_MOMENTS: tuple[DecodeMoment, ...] = ("arrival", "decode_first", "handoff", "recheck")

SOURCE_TERMS = 7
"""Terms of the score as it was first published; harm and crowd came later."""

DEFAULT_WEIGHTS: Weights = (1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0)
"""Predicted TTFT plus SloRisk: what an untuned pool gets, and the arm that every claim is measured against."""


_NOT_NEGATIVE = (
    "horizon_s",
    "wait_cap_s",
    "temperature_p_s",
    "temperature_d_s",
    "draws_p",
    "draws_d",
    "hysteresis_s",
    "dwell_s",
    "half_life_s",
)


@dataclass(frozen=True, slots=True)
class ClassPolicy:
    """One SLO class. `weights` in the order of `TERMS`, all >= 0 (w7 is subtracted by the score); of seven the last two
    are 0. Those of pressure, risk and harm are in seconds, that of Crowd is a part of PrefillWait for each request that
    waits. `quantile`: level of the output length that is booked. `reserve_blocks` stay free.
    """

    name: str
    objective: str = "slo_goodput"
    ttft_target_s: float | None = None
    tpot_target_s: float | None = None
    weights: Weights = DEFAULT_WEIGHTS
    quantile: float = 0.9
    reserve_blocks: float = 0.0

    def __post_init__(self) -> None:
        place = f"class {self.name!r}"
        if len(self.weights) == SOURCE_TERMS:
            object.__setattr__(self, "weights", (*self.weights, *DEFAULT_WEIGHTS[SOURCE_TERMS:]))
        if len(self.weights) != len(DEFAULT_WEIGHTS) or not all(math.isfinite(w) and w >= 0 for w in self.weights):
            raise PolicyError("a class must have nine finite weights >= 0", value=self.weights, place=place)
        for target in (self.ttft_target_s, self.tpot_target_s):
            if target is not None and not (math.isfinite(target) and target > 0):
                raise PolicyError("`target > 0` must hold", value=target, place=place, hint="no target is null")
        if not 0 < self.quantile < 1:
            raise PolicyError("`0 < quantile < 1` must hold", value=self.quantile, place=place)
        if not (math.isfinite(self.reserve_blocks) and self.reserve_blocks >= 0):
            raise PolicyError("`reserve_blocks >= 0` must hold", value=self.reserve_blocks, place=place)


@dataclass(frozen=True, slots=True)
class Policy:
    """A family with all its numbers; together with `Estimators` it decides (docs/decision.md says how).

    `high_water`: fraction of usable blocks where pressure starts. `horizon_s` bounds how far growth and release are
    projected, `wait_cap_s` the wait for a reservation. `release_floor`: least net release in blocks/s.
    `temperature_*_s`: seconds of jitter on P and on D. `risk_*`: tables of `policies.risk`. `params`: the family's own
    numbers in its order (`policies.families.params`), () = its defaults.

    `decode_moment`: when D is chosen. `draws_*`: nodes drawn for a decision, 0 = all. `hysteresis_s`, `dwell_s`: the
    band within which, and the time for which, a router keeps to a class's last pair; 0 = off. `half_life_s` of sampled
    rates, 0 = the last one alone. `lease_s` of bookings on D, None = the pool's.
    """

    family: str
    classes: tuple[ClassPolicy, ...]
    high_water: float = 0.85
    horizon_s: float = 30.0
    wait_cap_s: float = 30.0
    release_floor: float = 1.0
    unknown: Unknown = "worst"
    when_full: WhenFull = "queue"
    same_rack: SameRack = "none"
    temperature_p_s: float = 0.0
    temperature_d_s: float = 0.0
    risk_ttft: tuple[float, ...] = risk_table(RiskSigma().ttft)
    risk_tpot: tuple[float, ...] = risk_table(RiskSigma().tpot)
    params: tuple[float, ...] = ()
    decode_moment: DecodeMoment = "arrival"
    draws_p: int = 0
    draws_d: int = 0
    hysteresis_s: float = 0.0
    dwell_s: float = 0.0
    half_life_s: float = 0.0
    lease_s: float | None = None

    def __post_init__(self) -> None:
        if not self.classes:
            raise PolicyError("a policy must have at least one class")
        names = [c.name for c in self.classes]
        if len(set(names)) != len(names):
            raise PolicyError("class names must be unique", value=sorted(n for n in names if names.count(n) > 1)[0])
        if not 0 < self.high_water < 1:
            raise PolicyError("`0 < high_water < 1` must hold", value=self.high_water)
        for name, value, choices in (
            ("unknown", self.unknown, UNKNOWN),
            ("when_full", self.when_full, WHEN_FULL),
            ("same_rack", self.same_rack, SAME_RACK),
            ("decode_moment", self.decode_moment, DECODE_MOMENTS),
        ):
            if value not in choices:
                raise PolicyError(f"`{name}` must be one of {choices}", value=value)
        if not all(math.isfinite(value) for value in self.params):
            raise PolicyError("`params` must be finite", value=self.params)
        self._check_numbers()
        if not (math.isfinite(self.release_floor) and self.release_floor > 0):
            raise PolicyError("`release_floor > 0` must hold", value=self.release_floor, hint="it is a divisor")
        for name, table in (("risk_ttft", self.risk_ttft), ("risk_tpot", self.risk_tpot)):
            ascends = all(a <= b for a, b in pairwise(table))
            if len(table) != GRID_POINTS or not ascends or table[0] < 0.0 or table[-1] > 1.0:
                raise PolicyError(f"`{name}` must hold {GRID_POINTS} probabilities that never fall", value=len(table))

    def _check_numbers(self) -> None:
        for name in _NOT_NEGATIVE:
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise PolicyError(f"`{name} >= 0` must hold", value=getattr(self, name))
        if self.lease_s is not None and not (math.isfinite(self.lease_s) and self.lease_s > 0):
            raise PolicyError("`lease_s > 0` must hold", value=self.lease_s, hint="None is the pool's")


def default_policy(
    classes: Sequence[ClassPolicy], *, risk: RiskSigma | None = None, family: str = "routecal"
) -> Policy:
    """The policy of an untuned pool: the classes' targets, quantiles and reserves under the default weights."""
    sigma = risk or RiskSigma()
    return Policy(
        family=family,
        classes=tuple(replace(c, weights=DEFAULT_WEIGHTS) for c in classes),
        risk_ttft=risk_table(sigma.ttft),
        risk_tpot=risk_table(sigma.tpot),
    )
