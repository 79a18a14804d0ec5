"""`dynamo-fpm`: NVIDIA Dynamo's forward-pass metrics (version 1) as its trace (`dynamo.fpm.trace.v1`) or a recorder
writes them: one JSON line a pass of a worker's rank, bare or wrapped in {timestamp, event}.

`wall_time` is in seconds, from schedule() to update_from_output(); the pass is placed at the time that it was observed.
One row a pass of one phase: a step's table cannot hold a pass of both, and its time is neither one's, so that it is
skipped as `mixed_pass`; the heartbeat of an idle worker is skipped as `idle_heartbeat`. Queued work is no step.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, without_null
from features.readers.head import Head
from features.readers.lines import ROW, read_lines

SCHEMA_NAME = "dynamo.fpm.trace.v1"
_US_PER_MS, _US_PER_S = 1_000, 1_000_000
_SCHEDULED = pl.Struct(
    {
        "num_prefill_requests": pl.Int64(),
        "sum_prefill_tokens": pl.Int64(),
        "sum_prefill_kv_tokens": pl.Int64(),
        "num_decode_requests": pl.Int64(),
        "sum_decode_kv_tokens": pl.Int64(),
    }
)
_PASS: dict[str, Any] = {
    "worker_id": pl.String(),
    "dp_rank": pl.Int64(),
    "counter_id": pl.Int64(),
    "wall_time": pl.Float64(),
    "scheduled_requests": _SCHEDULED,
    "scheduled": _SCHEDULED,
}
_RECORD: dict[str, Any] = {"observed_at_unix_ms": pl.Int64(), "fpm": pl.Struct(_PASS)}
_SCHEMA = {**_PASS, **_RECORD, "event": pl.Struct({**_PASS, **_RECORD})}


def _sniff(head: Head) -> str:
    events = [value["event"] if isinstance(value.get("event"), dict) else value for value in head.objects]
    passes = [event["fpm"] if isinstance(event.get("fpm"), dict) else event for event in events]
    fits = sum(
        "wall_time" in one and "counter_id" in one and ("scheduled_requests" in one or "scheduled" in one)
        for one in passes
    )
    return "lines are forward passes (counter_id, wall_time, scheduled requests)" if fits * 2 > len(passes) else ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    del context
    for parsed in read_lines(path, _SCHEMA):
        flat, idless = without_null(_flat(parsed.frame), "counter_id")
        flat, empty = without_null(flat, "num_prefill_requests")
        prefill, decode = pl.col("num_prefill_requests") != 0, pl.col("num_decode_requests") != 0
        skipped = {
            "idle_heartbeat": flat.filter(~prefill & ~decode).height,
            "mixed_pass": flat.filter(prefill & decode).height,
        }
        bad = sorted([*parsed.bad, *idless, *empty], key=lambda line: line.row)
        yield Batch(_steps(flat.filter(prefill != decode)), bad, skipped)


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """A pass a row, wherever its fields stand: wrapped, in a record, or bare."""

    def first(name: str) -> pl.Expr:
        event, fpm = pl.col("event").struct, pl.col("fpm").struct
        return pl.coalesce(event.field("fpm").struct.field(name), event.field(name), fpm.field(name), pl.col(name))

    observed = pl.coalesce(pl.col("event").struct.field("observed_at_unix_ms"), "observed_at_unix_ms")
    names = [name for name in _PASS if not name.startswith("scheduled")]
    scheduled = pl.coalesce(first("scheduled_requests"), first("scheduled"))
    return (
        frame.select(
            *(first(name).alias(name) for name in names), scheduled.alias("scheduled"), observed.alias("observed"), ROW
        )
        .unnest("scheduled")
        .with_columns(pl.col("num_decode_requests").fill_null(0))
    )


def _steps(passes: pl.DataFrame) -> pl.DataFrame:
    prefill = pl.col("num_prefill_requests") != 0
    # Passes that ended within one millisecond stay apart, in their order: the counter is its microseconds.
    at = pl.col("observed") * _US_PER_MS + pl.col("counter_id") % _US_PER_MS
    return passes.select(
        at.alias("observed_at_us"),
        (pl.col("worker_id") + "/dp" + pl.col("dp_rank").fill_null(0).cast(pl.String)).alias("node"),
        pl.when(prefill).then(pl.lit("prefill")).otherwise(pl.lit("decode")).alias("phase"),
        pl.lit(1, pl.Int64).alias("n_steps"),
        (pl.col("wall_time") * _US_PER_S).round().cast(pl.Int64, strict=False).alias("busy_us"),
        pl.when(prefill)
        .then("num_prefill_requests")
        .otherwise("num_decode_requests")
        .cast(pl.Float64)
        .alias("sequences"),
        pl.when(prefill).then("sum_prefill_tokens").otherwise("sum_decode_kv_tokens").cast(pl.Float64).alias("tokens"),
        # A speculating engine makes more than one token a sequence: what a decode pass made is not told.
        pl.when(prefill).then("sum_prefill_tokens").alias("new_tokens"),
        pl.when(prefill).then("sum_prefill_kv_tokens").cast(pl.Float64).alias("context_tokens"),
        ROW,
    )


READER = Reader("dynamo-fpm", "steps", "Dynamo forward-pass metrics, version 1", _sniff, _read)
