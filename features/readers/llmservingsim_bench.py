"""`llmservingsim-bench`: requests of a vLLM run as LLMServingSim's benchmark records them, one JSON object a line.

Source: casys-kaist/LLMServingSim bench (vLLM 0.19): arrival_time is unix seconds of the API server; queued_ts,
scheduled_ts, first_token_ts and last_token_ts are seconds of the engine's monotonic clock. Nobody is queued before it
arrives, so the clocks are set against each other by the request that was queued soonest after its arrival; all four
times may be early by that request's delay, milliseconds. Ids are numbered from 0 in every run, so the arrival is added.
Prefill and decode share one engine, whose name the file does not give.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, most_have
from features.readers.head import Head
from features.readers.lines import ROW, read_lines
from features.readers.units import SECOND_US, whole_us

_SCHEMA: dict[str, Any] = {
    "request_id": pl.String,
    "input_toks": pl.Int64,
    "output_toks": pl.Int64,
    "arrival_time": pl.Float64,
    "queued_ts": pl.Float64,
    "scheduled_ts": pl.Float64,
    "first_token_ts": pl.Float64,
    "last_token_ts": pl.Float64,
}
_DELAY_MAX_S = 60.0
"""A clock difference that is further from the usual one is a damaged number."""


def _sniff(head: Head) -> str:
    if most_have(head.objects, "input_toks", "arrival_time", "queued_ts", "first_token_ts"):
        return "lines have input_toks, arrival_time, queued_ts and first_token_ts"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    ahead_s = _clock_ahead_s(path)
    arrived = whole_us(pl.col("arrival_time"), SECOND_US)
    for parsed in read_lines(path, _SCHEMA):
        frame = parsed.frame.select(
            pl.format("{}-{}", "request_id", arrived).alias("request_id"),
            pl.lit(context.pool).alias("pool"),
            arrived.alias("arrived_at_us"),
            pl.col("input_toks").alias("prompt_tokens"),
            pl.col("output_toks").alias("output_tokens"),
            *(
                whole_us(pl.col(name) + ahead_s, SECOND_US).alias(column)
                for name, column in (
                    ("scheduled_ts", "prefill_started_at_us"),
                    ("first_token_ts", "first_token_at_us"),
                    ("last_token_ts", "finished_at_us"),
                )
            ),
            ROW,
        )
        yield Batch(frame, parsed.bad)


def _clock_ahead_s(path: Path) -> float | None:
    """What to add to the engine's clock; None if no line tells."""
    ahead = pl.col("arrival_time") - pl.col("queued_ts")
    both = {name: _SCHEMA[name] for name in ("arrival_time", "queued_ts")}
    known = pl.concat([parsed.frame.select(ahead.alias("s")).drop_nulls() for parsed in read_lines(path, both)])
    usual = known["s"].median()
    if not isinstance(usual, float):
        return None
    near = known.filter((pl.col("s") - usual).abs() <= _DELAY_MAX_S)["s"].max()
    return near if isinstance(near, float) else None


READER = Reader("llmservingsim-bench", "requests", "vLLM run of LLMServingSim's benchmark", _sniff, _read)
