"""What the diagnosis is told beside the lake: targets, nodes and links. All of it may be missing."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_HIGH_WATER = 0.85


@dataclass(frozen=True, slots=True)
class ClassTarget:
    """Targets of one SLO class; None = it has none."""

    name: str
    ttft_ms: float | None = None
    tpot_ms: float | None = None


@dataclass(frozen=True, slots=True)
class NodeFact:
    """A node: its rack, and the line rate of its port (P: egress, D: ingress) in bytes a second."""

    name: str
    role: str
    rack: str
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class UplinkFact:
    """One direction between two racks."""

    from_rack: str
    to_rack: str
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class DiagnosisFacts:
    """What is known of a pool. `high_water`: fraction of usable KV from which on a node counts as nearly full."""

    classes: tuple[ClassTarget, ...] = ()
    nodes: tuple[NodeFact, ...] = ()
    uplinks: tuple[UplinkFact, ...] = ()
    high_water: float = DEFAULT_HIGH_WATER


@dataclass(frozen=True, slots=True)
class Limits:
    """How much work a diagnosis may do; above these, it samples and says so.

    `decisions`: decisions whose alternatives are looked at. `blocks`: uses of prompt blocks that are followed.
    `window_s`: length of a load window. `memory`: what duckdb may hold before it spills.
    """

    decisions: int = 50_000
    blocks: int = 2_000_000
    window_s: float = 10.0
    memory: str = "1GB"
    threads: int = 2
