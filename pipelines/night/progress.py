"""How far a night is: who is told, and what people read of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, int, int, float | None], None]
"""(stage, replays done, of how many at most, best so far). 0 of = nobody knows; best: softened goodput, None = none."""

FEW = 5
"""Replays that must be done before a stage's time left is told."""


@dataclass(slots=True)
class Stage:
    """A stage under way. `total`: replays at most, 0 = unknown."""

    name: str
    told: Progress
    total: int = 0
    done: int = 0
    best: float | None = None

    def step(self) -> None:
        """One more replay is done."""
        self.done += 1
        self.tell()

    def reached(self, left: int, best: float) -> None:
        """A batch of the search is done: so many replays are left at most, and the best so far scored this."""
        self.total = self.done + left
        self.best = best if math.isfinite(best) else None
        self.tell()

    def tell(self) -> None:
        """Where it is."""
        self.told(self.name, self.done, self.total, self.best)


def progress_text(done: int, total: int, best: float | None, elapsed_s: float) -> str:
    """`120 of at most 840 replays, best so far 91.3 % softened goodput, at most 4 min left`; empty at the beginning.

    Replays that a stage turns out not to need make the time left an upper estimate.
    """
    if not done:
        return f"at most {total} replays" if total else ""
    parts = [f"{done} of at most {total} replays" if total else f"{done} replays"]
    if best is not None:
        parts.append(f"best so far {best:.1%} softened goodput")
    if total > done >= FEW:
        parts.append(f"at most {_duration(elapsed_s * (total - done) / done)} left")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    """Rounded up: 40 s, 4 min, 2 h 05 min."""
    if seconds <= 90:
        return f"{max(1, math.ceil(seconds / 10)) * 10} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
