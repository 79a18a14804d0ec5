"""`dynamo-request-trace`: NVIDIA Dynamo's `dynamo.request.trace.v1`, bare or wrapped in {timestamp, event}.

One row a `request_end` event; tool events and request payloads are skipped by kind, payload text is never parsed.
Durations are milliseconds from the moment that the request was received.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, without_null
from features.readers.lines import ROW, read_lines

SCHEMA_NAME = "dynamo.request.trace.v1"
_END = "request_end"
_REQUEST = pl.Struct(
    {
        "request_id": pl.String(),
        "model": pl.String(),
        "input_tokens": pl.Int64(),
        "output_tokens": pl.Int64(),
        "cached_tokens": pl.Int64(),
        "request_received_ms": pl.Float64(),
        "prefill_wait_time_ms": pl.Float64(),
        "prefill_time_ms": pl.Float64(),
        "ttft_ms": pl.Float64(),
        "total_time_ms": pl.Float64(),
        "worker": pl.Struct(
            {
                "prefill_worker_id": pl.UInt64(),
                "prefill_dp_rank": pl.Int64(),
                "decode_worker_id": pl.UInt64(),
                "decode_dp_rank": pl.Int64(),
            }
        ),
        "replay": pl.Struct({"trace_block_size": pl.Int64(), "input_sequence_hashes": pl.List(pl.UInt64())}),
    }
)
_EVENT: dict[str, Any] = {
    "schema": pl.String(),
    "event_type": pl.String(),
    "agent_context": pl.Struct({"session_id": pl.String()}),
    "request": _REQUEST,
}
_SCHEMA = {**_EVENT, "event": pl.Struct(_EVENT)}


def _sniff(objects: list[dict[str, Any]]) -> str:
    events = [value["event"] if isinstance(value.get("event"), dict) else value for value in objects]
    if sum(event.get("schema") == SCHEMA_NAME for event in events) * 2 > len(events):
        return f"events have the schema {SCHEMA_NAME}"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    for parsed in read_lines(path, _SCHEMA):
        wrapped = pl.col("event").is_not_null()
        events = parsed.frame.select(
            ROW,
            *(
                pl.when(wrapped).then(pl.col("event").struct.field(name)).otherwise(pl.col(name)).alias(name)
                for name in _EVENT
            ),
        )
        events, bare = without_null(events, "event_type")
        ended = events.filter(pl.col("event_type") == _END)
        rest = events.filter(pl.col("event_type") != _END)
        kinds = rest["event_type"].value_counts().rows()
        yield Batch(_requests(ended, context), [*parsed.bad, *bare], {str(kind): int(count) for kind, count in kinds})


def _requests(events: pl.DataFrame, context: ReadContext) -> pl.DataFrame:
    request, worker, replay = (pl.col(name).struct for name in ("request", "worker", "replay"))
    flat = events.with_columns(request.field("worker"), request.field("replay"))
    received, wait, first = (request.field(f"{name}_ms") for name in ("request_received", "prefill_wait_time", "ttft"))

    def at(*parts: pl.Expr) -> pl.Expr:
        # A time that cannot be represented becomes null and breaks its rule instead of the reader.
        return (pl.sum_horizontal(parts, ignore_nulls=False) * 1_000).round().cast(pl.Int64, strict=False)

    def node(phase: str) -> pl.Expr:
        rank = worker.field(f"{phase}_dp_rank").fill_null(0).cast(pl.String)
        return worker.field(f"{phase}_worker_id").cast(pl.String) + "/dp" + rank

    return flat.select(
        request.field("request_id"),
        pl.lit(context.pool).alias("pool"),
        at(received).alias("arrived_at_us"),
        pl.col("agent_context").struct.field("session_id"),
        request.field("model"),
        request.field("input_tokens").alias("prompt_tokens"),
        request.field("output_tokens"),
        replay.field("trace_block_size").alias("block_tokens"),
        replay.field("input_sequence_hashes").alias("block_hashes"),
        pl.lit("dynamo").alias("block_hash_scope"),
        request.field("cached_tokens").alias("prefill_cached_tokens"),
        node("prefill").alias("prefill_node"),
        node("decode").alias("decode_node"),
        at(received, wait).alias("prefill_started_at_us"),
        at(received, wait, request.field("prefill_time_ms")).alias("prefill_finished_at_us"),
        at(received, first).alias("first_token_at_us"),
        at(received, request.field("total_time_ms")).alias("finished_at_us"),
        ROW,
    )


READER = Reader("dynamo-request-trace", "requests", f"Dynamo request trace, {SCHEMA_NAME}", _sniff, _read)
