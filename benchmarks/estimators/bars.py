"""What a part of the estimators' benchmark yields: a table with baselines side by side, and bars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Bar:
    """One demand: `value` against `bar`. `sense`: the value must be at most, or at least, the bar."""

    name: str
    value: float
    bar: float
    sense: Literal["at most", "at least"] = "at most"

    @property
    def met(self) -> bool:
        """Whether the demand is met; a value that is not a number meets nothing."""
        return self.value <= self.bar if self.sense == "at most" else self.value >= self.bar


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a method on a data set under a protocol, with its figures by name."""

    data: str
    protocol: str
    method: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Part:
    """Results of one part."""

    name: str
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]
    notes: tuple[str, ...] = ()
