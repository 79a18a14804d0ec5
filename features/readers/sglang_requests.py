"""`sglang-request-metrics`: SGLang's request exporter, one JSON object a finished request.

Source: SGLang 0.5.23, `--export-metrics-to-file` (observability/request_metrics_exporter.py): `meta_info` of the answer
and `request_parameters`, a JSON text in the JSON that may hold prompts. Only the fields named here are decoded, nothing
else of it is kept. Times ending in `_ts`, forward_entry_time and prefill_finished_time are unix seconds of one host,
latencies are seconds; several are there only with `--enable-metrics`. -1, null and absent are unknown.

A line does not say which instance wrote it, so nodes stay unknown. With disaggregation (the request has a bootstrap
room) P and D write a line each, under ids of their own. P ends a request with length 0 when the KV has left: such lines
are skipped as `prefill_side`, since D's line counts the request, and a D's forward entry is its decode admission.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.columns import TIME_MIN_US
from features.readers.base import Batch, ReadContext, Reader, most_have
from features.readers.head import Head
from features.readers.lines import ROW, read_lines
from features.readers.units import SECOND_US, whole_us

_HEALTH_CHECK = "HEALTH_CHECK"
_SHED = (429, 503)
_INNER = "request_parameters"
_PARAMETERS: dict[str, Any] = {
    "rid": pl.String(),
    "priority": pl.Int64(),
    "bootstrap_room": pl.UInt64(),
    "sampling_params": pl.Struct({"max_new_tokens": pl.Int64()}),
    "session_params": pl.Struct({"id": pl.String()}),
}
_SCHEMA: dict[str, Any] = {
    _INNER: pl.String(),
    "id": pl.String(),
    "finish_reason": pl.Struct({"type": pl.String(), "length": pl.Int64(), "status_code": pl.Int64()}),
    "prompt_tokens": pl.Int64(),
    "completion_tokens": pl.Int64(),
    "cached_tokens": pl.Int64(),
    "num_retractions": pl.Int64(),
    "e2e_latency": pl.Float64(),
    "first_token_latency": pl.Float64(),
    "request_received_ts": pl.Float64(),
    "request_finished_ts": pl.Float64(),
    "forward_entry_time": pl.Float64(),
    "prefill_finished_time": pl.Float64(),
}


def _sniff(head: Head) -> str:
    if most_have(head.objects, _INNER, "id") or most_have(head.objects, _INNER, "e2e_latency"):
        return "lines have request_parameters beside an answer's meta_info"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    for parsed in read_lines(path, _SCHEMA, inner={_INNER: _PARAMETERS}):
        lines = _flat(parsed.frame)
        health = pl.col("request_id").str.starts_with(_HEALTH_CHECK).fill_null(value=False)
        left = pl.col("disaggregated") & (pl.col("length") == 0).fill_null(value=False)
        asked = lines.filter(~health)
        served = asked.filter(~left)
        skipped = {"health_check": lines.height - asked.height, "prefill_side": asked.height - served.height}
        yield Batch(_requests(served, context), parsed.bad, skipped)


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """One column a field; -1 is unknown, any other negative value stays and breaks its rule."""
    inner, finish = pl.col(_INNER).struct, pl.col("finish_reason").struct
    flat = frame.with_columns(
        pl.coalesce("id", inner.field("rid")).alias("request_id"),
        inner.field("priority"),
        inner.field("bootstrap_room").is_not_null().alias("disaggregated"),
        inner.field("sampling_params").struct.field("max_new_tokens"),
        inner.field("session_params").struct.field("id").alias("session_id"),
        finish.field("type"),
        finish.field("length"),
        finish.field("status_code"),
    ).drop(_INNER, "finish_reason")
    numbers = [name for name, dtype in flat.schema.items() if dtype.is_numeric() and name not in (ROW, "priority")]
    return flat.with_columns(pl.when(pl.col(name) != -1).then(name).alias(name) for name in numbers)


def _requests(lines: pl.DataFrame, context: ReadContext) -> pl.DataFrame:
    received = pl.coalesce("request_received_ts", pl.col("request_finished_ts") - pl.col("e2e_latency"))
    finished = pl.coalesce("request_finished_ts", received + pl.col("e2e_latency"))
    entered, computed = _unix_us(pl.col("forward_entry_time")), _unix_us(pl.col("prefill_finished_time"))
    here = ~pl.col("disaggregated")
    return lines.select(
        "request_id",
        pl.lit(context.pool).alias("pool"),
        _us(received).alias("arrived_at_us"),
        "priority",
        "session_id",
        "prompt_tokens",
        pl.col("completion_tokens").alias("output_tokens"),
        pl.col("max_new_tokens").alias("max_output_tokens"),
        _finish_reason().alias("finish_reason"),
        pl.col("cached_tokens").alias("prefill_cached_tokens"),
        pl.when(here).then(entered).alias("prefill_started_at_us"),
        pl.when(here).then(computed).alias("prefill_finished_at_us"),
        pl.when(~here).then(entered).alias("decode_admitted_at_us"),
        _us(received + pl.col("first_token_latency")).alias("first_token_at_us"),
        _us(finished).alias("finished_at_us"),
        pl.col("num_retractions").alias("preemptions"),
        ROW,
    )


def _finish_reason() -> pl.Expr:
    """An abort without a status is the client's; the engine sheds with 503 (full or too long in the queue)."""
    kind, status = pl.col("type"), pl.col("status_code")
    return (
        pl.when(kind.is_in(["stop", "length"]))
        .then(kind)
        .when((kind == "abort") & status.is_null())
        .then(pl.lit("cancelled"))
        .when((kind == "abort") & status.is_in(list(_SHED)))
        .then(pl.lit("rejected"))
        .when(kind == "abort")
        .then(pl.lit("failed"))
    )


def _us(seconds: pl.Expr) -> pl.Expr:
    return whole_us(seconds, SECOND_US)


def _unix_us(seconds: pl.Expr) -> pl.Expr:
    """Older engines wrote these two of a monotonic clock, which says nothing here."""
    return pl.when(~_us(seconds).is_between(0, TIME_MIN_US, closed="left")).then(_us(seconds))


READER = Reader("sglang-request-metrics", "requests", "request exporter of SGLang", _sniff, _read)
