"""Cumulative counters that go back. All of a node's at once is a restart; one alone contradicts the others."""

from __future__ import annotations

import polars as pl

from features.quality import REASONS, Rules

COUNTERS = (
    "prefill_busy_us",
    "prefill_computed_tokens",
    "generated_tokens",
    "preemptions",
    "allocation_failures",
    "swap_bytes",
)
REASONS["counter_went_back"] = "a counter fell while another of the node's rose: they were not read at one moment"


def counters_go_on(node_loads: pl.DataFrame) -> pl.Series:
    """Whether no counter of a sample is below the node's sample before while another one is above.

    Judged within the rows that are given (a chunk of a log), in order of their times.
    """
    ordered = node_loads.select("node", "observed_at_us", *COUNTERS, at=pl.int_range(pl.len())).sort(
        "node", "observed_at_us", maintain_order=True
    )
    change = [pl.col(name) - pl.col(name).shift(1).over("node") for name in COUNTERS]
    fell = pl.any_horizontal((step < 0).fill_null(value=False) for step in change)
    rose = pl.any_horizontal((step > 0).fill_null(value=False) for step in change)
    return ordered.select("at", holds=~(fell & rose)).sort("at")["holds"]


COUNTER_RULES: Rules = {"counter_went_back": counters_go_on}
