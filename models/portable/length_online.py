"""What a router keeps while it runs, so that its quantiles follow today's answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from features.trailing import RECENT_ANSWERS, RECENT_LEAST
from models.portable.length import Arrival, LengthLaw, own_key, quantiles

DECAY = 1.0 - 1.0 / RECENT_ANSWERS


@dataclass(slots=True)
class Recent:
    """Weighted sum of log(1 + tokens) over answers, newest first, its weights' sum, and how many there were."""

    total: float = 0.0
    weight: float = 0.0
    answers: int = 0

    def add(self, output_tokens: int) -> None:
        """One more answer; older ones fade."""
        self.total = self.total * DECAY + math.log1p(output_tokens)
        self.weight = self.weight * DECAY + 1.0
        self.answers += 1

    @property
    def mean(self) -> float | None:
        """Geometric mean in tokens; None after too few answers."""
        return math.expm1(self.total / self.weight) if self.answers >= RECENT_LEAST else None


@dataclass(slots=True)
class LengthTracker:
    """Offsets and recent answers, group by group. One a router: it sees the answers of its own requests."""

    law: LengthLaw
    offset: dict[str, list[float]] = field(init=False)
    recent: dict[str, Recent] = field(init=False)

    def __post_init__(self) -> None:
        self.offset = {group: list(values) for group, values in self.law.offset.items()}
        self.recent = {
            key: Recent(math.log1p(tokens) * RECENT_ANSWERS, RECENT_ANSWERS, RECENT_ANSWERS)
            for key, tokens in self.law.recent.items()
        }

    def complete(self, arrival: Arrival) -> Arrival:
        """The arrival with the `recent_output` of now. What it is at arrival goes into `observe` at the end."""
        own = self.recent.get(own_key(arrival))
        return replace(arrival, recent_output=None if own is None else own.mean)

    def quantiles(self, arrival: Arrival) -> tuple[float, ...]:
        """Output tokens by level, with today's offsets."""
        return quantiles(self.law.base(arrival), self.offset[self.law.group(arrival)], self.law.cap(arrival))

    def observe(self, arrival: Arrival, output_tokens: int) -> None:
        """An answer has ended by itself or at its limit (never call it for one that was cancelled).

        Every level's offset moves up if the answer is longer than its quantile would be now, else down, so that in the
        long run a share 1 - level of the answers is longer.
        """
        group = self.law.group(arrival)
        offset, pace = self.offset[group], self.law.pace[group]
        expected = quantiles(self.law.base(arrival), offset, self.law.cap(arrival))
        for k, level in enumerate(self.law.levels):
            missed = 1.0 if output_tokens > expected[k] else 0.0
            offset[k] *= 1.0 + pace[k] * (missed - (1.0 - level))
        self.recent.setdefault(own_key(arrival), Recent()).add(output_tokens)
