"""What goes wrong in a pool, and when: windows of time, on the clock of the replay (docs/twin.md, "Faults")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from features.errors import TwinError


@dataclass(frozen=True, slots=True)
class Window:
    """From `start_ns` on until before `stop_ns`."""

    start_ns: int
    stop_ns: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_ns < self.stop_ns:
            raise TwinError("`0 <= start_ns < stop_ns` must hold", value=(self.start_ns, self.stop_ns))

    def holds(self, now: int) -> bool:
        """Whether `now` is within."""
        return self.start_ns <= now < self.stop_ns


@dataclass(frozen=True, slots=True)
class Drain(Window):
    """The node does not accept requests; what it has is served."""

    node: str


@dataclass(frozen=True, slots=True)
class Outage(Window):
    """The node is gone: what is on it fails, what it has cached is lost, and it is back, empty, at the end."""

    node: str


@dataclass(frozen=True, slots=True)
class SlowLink(Window):
    """A port or uplink carries `factor` of its speed; names as in `models.portable.transfer`."""

    port: str
    factor: float


@dataclass(frozen=True, slots=True)
class Faults:
    """All that goes wrong. `gaps`: no sample of the pool that is taken then ever comes.

    `seen`: routers know that a node does not accept as late as their samples, or at once.
    """

    drains: tuple[Drain, ...] = ()
    outages: tuple[Outage, ...] = ()
    slow: tuple[SlowLink, ...] = ()
    gaps: tuple[Window, ...] = ()
    seen: Literal["telemetry", "at_once"] = "telemetry"

    def __post_init__(self) -> None:
        for link in self.slow:
            if not link.factor > 0:
                raise TwinError("`factor > 0` must hold", value=link.factor, place=link.port)

    def is_closed(self, node: str, now: int) -> bool:
        """Whether the node does not accept requests."""
        return self.is_down(node, now) or any(w.node == node and w.holds(now) for w in self.drains)

    def is_down(self, node: str, now: int) -> bool:
        """Whether the node is gone."""
        return any(w.node == node and w.holds(now) for w in self.outages)


NO_FAULTS = Faults()


def rolling_restart(
    nodes: Sequence[str], *, start_ns: int, drain_ns: int, restart_ns: int
) -> tuple[tuple[Drain, ...], tuple[Outage, ...]]:
    """One node after the other is drained for a time and then restarted with an empty cache."""
    drains, outages, at = [], [], start_ns
    for node in nodes:
        drains.append(Drain(at, at + drain_ns, node))
        outages.append(Outage(at + drain_ns, at + drain_ns + restart_ns, node))
        at += drain_ns + restart_ns
    return tuple(drains), tuple(outages)
