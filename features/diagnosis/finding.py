"""One thing that is wrong, with its number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from features.diagnosis.intervals import Estimate

Severity: TypeAlias = Literal["notice", "warning", "severe"]
Rows: TypeAlias = list[dict[str, Any]]
Tables: TypeAlias = dict[str, Rows]
NAMES = (
    "slow_prefill_node", "slow_decode_node", "congested_link", "thrashing_prefix_cache", "prefix_missed_by_routing",
    "hot_prefix", "herding", "stale_telemetry", "avoidable_wait", "undersized_prefill_pool", "undersized_decode_pool",
    "slow_decode_pool", "back_pressure", "preemptions", "refused_requests", "allocation_failures",
)  # fmt: skip
"""Every name that a finding can have; they are stable."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that holds. `subject`: the node, link, routers or prefix that it is about, `pool` = all of it.

    `value` in `unit` stands against `compared_to`, of which `comparison` says what it is. `low`, `high`: 95 % interval,
    None where there is none; `n` observations of the kind `counted`.
    """

    name: str
    severity: Severity
    subject: str
    value: float
    unit: str
    compared_to: float
    comparison: str
    low: float | None
    high: float | None
    n: int
    counted: str
    text: str


def bounds(estimate: Estimate) -> tuple[float | None, float | None]:
    """The interval of an estimate; None where it has no end."""
    low, high = (x if math.isfinite(x) else None for x in (estimate.low, estimate.high))
    return low, high


def stage(tables: Tables, name: str, dimension: str = "all", value: str = "all") -> dict[str, Any] | None:
    """A row of the table `ttft_stages`; None if the stage is unknown."""
    for row in tables.get("ttft_stages", ()):
        if (row["dimension"], row["value"], row["stage"]) == (dimension, value, name):
            return row
    return None


def percent(share: float) -> str:
    """A share as people read it: with a digit behind the point where it is small or nearly all."""
    whole = share <= 0 or 0.1 <= share < 0.99 or share >= 1
    return f"{100 * share:.0f} %" if whole else f"{100 * share:.1f} %"
