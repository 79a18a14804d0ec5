"""Findings about single nodes: slower than their peers at the same work."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

from features.diagnosis.finding import Finding, Tables, bounds
from features.diagnosis.intervals import Estimate, median_factor

SLOW_FACTOR = 1.15
"""Step time over the peers' from which a node is slow. Makes of one type differ by a few percent; a throttled card or a
bad link between its GPUs costs tens."""
SLOW_AT_LEAST = 1.08
"""The lower end of the interval must be above it."""
SEVERE_FACTOR = 1.5
FEWEST_RUNS, FEWEST_STEPS = 50, 30
ROWS_THAT_COUNT_AS_ONE = 4.0


def speeds(rows: list[dict[str, Any]]) -> dict[str, Estimate]:
    """Node -> step time over that of its peers, from rows {node, rows, effect, mad}. Peers: the other nodes' median."""
    found = {}
    for row in rows:
        others = [other["effect"] for other in rows if other["node"] != row["node"]]
        if others:
            found[row["node"]] = median_factor(
                row["effect"], row["mad"], row["rows"], median(others), per_row=ROWS_THAT_COUNT_AS_ONE
            )
    return found


def slow_nodes(tables: Tables) -> list[Finding]:
    """`slow_prefill_node` and `slow_decode_node`."""
    kinds = (
        ("prefill", "slow_prefill_node", FEWEST_RUNS, "runs of prefill of the same size"),
        ("decode", "slow_decode_node", FEWEST_STEPS, "decode steps at the same batch"),
    )
    found = []
    for side, name, fewest, what in kinds:
        for node, factor in speeds(tables.get(f"{side}_speed", [])).items():
            if factor.n < fewest or factor.value < SLOW_FACTOR or factor.low < SLOW_AT_LEAST:
                continue
            low, high = bounds(factor)
            found.append(
                Finding(
                    name=name,
                    severity="severe" if factor.value >= SEVERE_FACTOR else "warning",
                    subject=node,
                    value=factor.value,
                    unit="times the peers' step time",
                    compared_to=1.0,
                    comparison="the median of the other nodes",
                    low=low,
                    high=high,
                    n=factor.n,
                    counted=what,
                    text=f"{node} takes {factor.value:.2f} times as long as its peers for {what} "
                    f"[{factor.low:.2f}, {factor.high:.2f}; {factor.n} observations].",
                )
            )
    return found


def spread(rows: list[dict[str, Any]]) -> float | None:
    """Largest speed factor over the smallest; None with fewer than two nodes."""
    effects = [row["effect"] for row in rows]
    return math.exp(max(effects) - min(effects)) if len(effects) > 1 else None
