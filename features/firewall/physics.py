"""Requests that no machine could have served: judged row by row."""

from __future__ import annotations

import polars as pl

from features.firewall.facts import PoolFacts
from features.quality import REASONS, Rules

LINE_BYTES_PER_S_MAX = 2e12
"""No port of any accelerator is as fast (NVLink 5: 1.8e12 bytes/s); used where the pool's line rate is unknown."""
TOLERANCE = 1.25
"""Rates are quoted in round numbers, and the hosts that stamp a transfer's start and end differ a little; what measures
a part of the whole is wrong by a factor of two or more.
"""
_ROUNDING_US, _MS_US, _S_US = 2, 1_000, 1_000_000
_RANK = r"/dp\d+$"

REASONS["transfer_above_line_rate"] = (
    "the KV arrived faster than the line carries: bytes of all ranks over the time of one, an average of ranks taken "
    "for wall throughput, or the time of the last chunk only"
)


def physics(facts: PoolFacts) -> Rules:
    """Rules of single requests."""
    line = facts.line_bytes_per_s or LINE_BYTES_PER_S_MAX * (facts.tensor_parallel or 1)
    began, took_us = (
        pl.col("transfer_started_at_us"),
        pl.col("transfer_finished_at_us") - pl.col("transfer_started_at_us"),
    )
    # A clock of ms or s: the transfer may have taken up to one more tick than it says.
    tick_us = (
        pl.when(took_us % _MS_US != 0)
        .then(_ROUNDING_US)
        .when((took_us % _S_US == 0) & (began % _S_US == 0))
        .then(_S_US)
        .otherwise(_MS_US)
    )
    most = (took_us + tick_us) / 1e6 * line * TOLERANCE
    # Between P and D of one host the KV does not go through a port.
    one_host = pl.col("prefill_node").str.replace(_RANK, "") == pl.col("decode_node").str.replace(_RANK, "")

    def within_line_rate(requests: pl.DataFrame) -> pl.Series:
        holds = requests.select(holds=(pl.col("transferred_bytes") <= most))["holds"].fill_null(value=True)
        return holds if holds.all() else holds | requests.select(one_host.fill_null(value=False)).to_series()

    return {"transfer_above_line_rate": within_line_rate}
