"""The trace behind a replay's report: which row of it a request is.

A replay numbers its requests anew, drops the block hashes, divides arrivals by its speed-up and writes requests as they
end. A request is the row of the same arrival, input and output length. The speed-up and the time of the replay's 0
follow from requests whose lengths the trace has once. Where several rows are alike, requests take them in turn, in the
order of the report; which is which nothing says, so they are counted as ambiguous.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from features.errors import SourceError
from features.readers.base import ReadContext
from features.readers.mooncake import BLOCK_TOKENS, trace_rows
from features.readers.traces import row_ids

_LENGTHS = ["input_length", "output_length"]
_KEY = ["at_us", *_LENGTHS]
_FEW = 3


class ReplayedTrace:
    """A trace in Mooncake format, which completes the rows of a report batch by batch.

    Raises SourceError if the file holds no row of the format.
    """

    def __init__(self, path: Path) -> None:
        rows = trace_rows(path)
        if rows.is_empty():
            raise SourceError("a trace must hold rows of the Mooncake format", place=str(path))
        self._scope = path.name
        timed = rows.with_columns(row_ids(ReadContext("", path.name)).alias("row_id"))
        at_us = (pl.col("timestamp") * 1_000).round().cast(pl.Int64)
        self._rows = timed.select(
            "timestamp",
            at_us.alias("at_us"),
            *_LENGTHS,
            "row_id",
            pl.col("hash_ids").alias("block_hashes"),
            nth=pl.int_range(pl.len()).over(at_us, *_LENGTHS),
            alike=pl.len().over(at_us, *_LENGTHS),
        )
        self._lone = timed.filter(pl.len().over(_LENGTHS) == 1).select(*_LENGTHS, "timestamp")
        self._used = pl.DataFrame(schema=dict.fromkeys((*_KEY, "before"), pl.Int64))
        self._clock: tuple[float, float] | None = None

    def complete(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Mapping[str, int]]:
        """The rows with row_id, block_tokens, block_hashes and block_hash_scope, null where the trace has no such row.

        frame: columns arrival_time_ms, input_length, output_length. Second: how many rows the trace does not have, and
        how many were one of several alike.
        """
        speed, zero = self._clock = self._clock or self._clock_of(frame)
        at_us = ((pl.col("arrival_time_ms") * speed + zero) * 1_000).round().cast(pl.Int64, strict=False)
        keyed = frame.with_columns(at_us=at_us)
        keyed = keyed.join(self._used, on=_KEY, how="left", maintain_order="left").with_columns(
            nth=pl.int_range(pl.len()).over(_KEY) + pl.col("before").fill_null(0)
        )
        found = keyed.join(self._rows.drop("timestamp"), on=[*_KEY, "nth"], how="left", maintain_order="left")
        seen = (
            found.filter(pl.col("alike") > 1).group_by(_KEY).len("before").with_columns(pl.col("before").cast(pl.Int64))
        )
        self._used = pl.concat([self._used, seen]).group_by(_KEY).agg(pl.col("before").sum())
        told = {
            "not in the trace": found["row_id"].null_count(),
            "one of several alike in the trace": int((found["alike"] > 1).sum()),
        }
        known = pl.col("row_id").is_not_null()
        return found.with_columns(
            block_tokens=pl.when(known).then(pl.lit(BLOCK_TOKENS, pl.Int64)),
            block_hash_scope=pl.when(known).then(pl.lit(self._scope)),
        ).drop("at_us", "before", "nth", "alike"), told

    def _clock_of(self, frame: pl.DataFrame) -> tuple[float, float]:
        """(speed-up, timestamp of the replay's 0) by the rows whose lengths the trace has once; ms."""
        pairs = frame.join(self._lone, on=_LENGTHS, how="inner").drop_nulls("arrival_time_ms").sort("arrival_time_ms")
        arrival, stamp = pairs["arrival_time_ms"].to_numpy(), pairs["timestamp"].to_numpy()
        half = arrival.size // 2
        apart = arrival[half:] - arrival[: arrival.size - half]
        moved = stamp[half:] - stamp[: stamp.size - half]
        if half < _FEW or not np.any(apart > 0):
            return 1.0, 0.0
        speed = float(np.median(moved[apart > 0] / apart[apart > 0]))
        return speed, float(np.median(stamp - arrival * speed))
