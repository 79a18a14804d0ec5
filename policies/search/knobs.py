"""One searched number: its bounds, its scale, and what a coordinate of it means."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from features.errors import PolicyError

Scale: TypeAlias = Literal["log", "whole", "choice"]

OTHER_CHOICE = 0.5
"""Distance of one choice from another, where a knob's whole range is 1."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A number in [low, high], searched on a log scale; below `off_below` it means 0.

    `whole`: integers, linear. `choices`: the coordinate is a place among these values, in no order; `low` and `high`
    are the first and the last place.
    """

    name: str
    low: float
    high: float
    default: float
    off_below: float = 0.0
    whole: bool = False
    choices: tuple[float, ...] = ()

    @property
    def scale(self) -> Scale:
        """How coordinates are drawn."""
        if self.choices:
            return "choice"
        return "whole" if self.whole else "log"

    def value(self, raw: float) -> float:
        """What a raw coordinate means."""
        if self.choices:
            return self.choices[round(raw)]
        return 0.0 if 0 < raw < self.off_below else raw

    def raw(self, value: float) -> float:
        """The coordinate of a value, clipped to the bounds; all that is off has one coordinate."""
        if self.choices:
            return float(min(range(len(self.choices)), key=lambda place: abs(self.choices[place] - value)))
        if self.off_below > 0 and value < self.off_below:
            return math.sqrt(self.low * self.off_below)
        return min(self.high, max(self.low, value))

    def apart(self, raw: float, other: float) -> float:
        """Distance of two coordinates as a part of the knob's range; all that is off is one place."""
        here, there = self.raw(self.value(raw)), self.raw(self.value(other))
        if self.scale == "choice":
            return 0.0 if here == there else OTHER_CHOICE
        if self.scale == "log":
            return abs(math.log(here / there)) / math.log(self.high / self.low)
        return abs(here - there) / max(1.0, self.high - self.low)

    def on_bound(self, raw: float) -> bool:
        """Whether a searched number lies on a bound (within 1 % of the range); what is off or counted never does."""
        if self.scale != "log" or self.value(raw) == 0.0:
            return False
        margin = (self.high / self.low) ** 0.01
        return not self.low * margin < raw < self.high / margin

    def wider(self, factor: float) -> Knob:
        """The knob with room beyond the bounds that it has."""
        if self.scale != "log":
            return self
        return replace(self, low=self.low if self.off_below > 0 else self.low / factor, high=self.high * factor)


def among(name: str, choices: tuple[float, ...], default: float) -> Knob:
    """A knob whose values are these; the default is one of them."""
    return Knob(name, 0.0, len(choices) - 1.0, float(choices.index(default)), choices=choices)


def around(name: str, bounds: tuple[float, float, float], default: float) -> Knob:
    """A knob of (low, high, off_below) that holds its default, on a log scale."""
    low, high, off_below = bounds
    if default == 0 and off_below == 0:
        raise PolicyError(f"`{name} > 0` must hold in a policy that the search starts from", value=default)
    if default > 0:
        low, high = min(low, default), max(high, default)
        if default < off_below:
            low, off_below = default / 4, default
    knob = Knob(name, low, high, low, off_below)
    return replace(knob, default=knob.raw(default))
