"""Requests that no machine could have served: judged row by row."""

from __future__ import annotations

import polars as pl

from features.firewall.facts import PoolFacts
from features.quality import REASONS, Rules

LINE_BYTES_PER_S_MAX = 2e12
"""No port of any machine is as fast (NVLink 5: 1.8e12 bytes/s); used where the pool's line rate is unknown."""
TOLERANCE = 1.05
"""Clocks of µs and rates that are quoted in round numbers."""
_ROUNDING_US = 2

REASONS["transfer_above_line_rate"] = (
    "the KV arrived faster than the line carries: bytes of all ranks over the time of one, an average of ranks taken "
    "for wall throughput, or the time of the last chunk only"
)


def physics(facts: PoolFacts) -> Rules:
    """Rules of single requests."""
    line = facts.line_bytes_per_s or LINE_BYTES_PER_S_MAX

    def within_line_rate(requests: pl.DataFrame) -> pl.Series:
        took_us = pl.col("transfer_finished_at_us") - pl.col("transfer_started_at_us") + _ROUNDING_US
        most = took_us / 1e6 * line * TOLERANCE
        return requests.select((pl.col("transferred_bytes") <= most).alias("holds"))["holds"]

    return {"transfer_above_line_rate": within_line_rate}
