"""Cumulative counters that go back. All of a node's at once is a restart; one alone contradicts the others."""

from __future__ import annotations

import polars as pl

from features.quality import REASONS

COUNTERS = (
    "prefill_busy_us",
    "prefill_computed_tokens",
    "generated_tokens",
    "preemptions",
    "allocation_failures",
    "swap_bytes",
    "decode_steps",
)
REASONS["counter_went_back"] = "a counter fell while another of the node's went on: they were not read at one moment"
_STEPS = pl.col("decode_moments").list.get(0, null_on_oob=True).alias("decode_steps")
_TIME = "observed_at_us"


class CounterEvidence:
    """The last sample of every node, in the order of the log."""

    def __init__(self) -> None:
        self._last: pl.DataFrame | None = None

    def go_on(self, node_loads: pl.DataFrame) -> pl.Series:
        """Whether no counter of a sample is below that of the node's sample before while another one went on.

        A counter that a restart set to 0 can pass small numbers again in one interval: only one that rose by no more
        than it had is taken to have gone on. Samples that the log does not hold in order of time are not compared, nor
        are counters that one of the two samples does not know.
        """
        given = node_loads.select("node", _TIME, *COUNTERS[:-1], _STEPS, at=pl.int_range(pl.len()))
        rows = given if self._last is None else pl.concat([self._last, given])
        before = {name: pl.col(name).shift(1).over("node") for name in (_TIME, *COUNTERS)}
        fell = pl.any_horizontal((pl.col(name) < before[name]).fill_null(value=False) for name in COUNTERS)
        goes_on = pl.any_horizontal(
            ((pl.col(name) > before[name]) & (pl.col(name) - before[name] <= before[name])).fill_null(value=False)
            for name in COUNTERS
        )
        later = (pl.col(_TIME) > before[_TIME]).fill_null(value=False)
        judged = rows.select("at", holds=~(fell & goes_on & later))
        self._last = rows.group_by("node", maintain_order=True).last().with_columns(at=pl.lit(-1, pl.Int64))
        return judged.filter(pl.col("at") >= 0)["holds"]
