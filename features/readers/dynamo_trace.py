"""`dynamo-request-trace`: NVIDIA Dynamo's request trace, bare or wrapped in {timestamp, event}.

Source: `DYN_REQUEST_TRACE=1`, schema dynamo.request.trace.v1, and its forerunner `DYN_AGENT_TRACE=1`, schema
dynamo.agent.trace.v1. One row a `request_end` event. Rows of requests without an agent hold little: their prompt length
stands in `replay`. Durations are milliseconds from the moment that the request was received; `ttft_ms` is taken as it
is documented, to the first token. A session is one agent's conversation: `session_id`, in the forerunner
`trajectory_id` or `program_id`, of which several share a session.

Other events are skipped by kind and their payload is never parsed. The trace is best effort: it drops events without a
mark. What shows it is the end of a tool call whose start is not there; it is skipped as `<event>_without_start`.
Not kept: the estimate of the transfer (an upper bound, no measurement), the mean inter-token latency, the router's
queue depth, and the caller's own request id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, without_null
from features.readers.head import Head, read_head
from features.readers.lines import ROW, read_lines
from features.readers.units import MS_US, whole_us

SCHEMA_NAMES = ("dynamo.request.trace.v1", "dynamo.agent.trace.v1")
_END = "request_end"
_TOOL_START, _TOOL_ENDS = "tool_start", ("tool_end", "tool_error")
_FINISH = {
    "stop": "stop",
    "eos": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "length": "length",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "error": "failed",
}
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
        "replay": pl.Struct(
            {
                "trace_block_size": pl.Int64(),
                "input_length": pl.Int64(),
                "input_sequence_hashes": pl.List(pl.UInt64()),
            }
        ),
        "finish_reason_metadata": pl.Struct({"finish_reason": pl.String()}),
    }
)
_EVENT: dict[str, Any] = {
    "schema": pl.String(),
    "event_type": pl.String(),
    "agent_context": pl.Struct({"trajectory_id": pl.String(), "program_id": pl.String(), "session_id": pl.String()}),
    "session_id": pl.String(),
    "tool": pl.Struct({"tool_call_id": pl.String()}),
    "request": _REQUEST,
}
_CALL = ("session", "call")
_WRAPPED = {"event": pl.Struct(_EVENT)}
_SCHEMA = {**_EVENT, **_WRAPPED}


def _sniff(head: Head) -> str:
    events = [value["event"] if isinstance(value.get("event"), dict) else value for value in head.objects]
    named = Counter(name for event in events if (name := event.get("schema")) in SCHEMA_NAMES)
    if named.total() * 2 > len(events):
        return f"events have the schema {named.most_common(1)[0][0]}"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    started = pl.DataFrame(schema={**dict.fromkeys(("kind", *_CALL), pl.String), ROW: pl.Int64})
    schema = _layout(path)
    for parsed in read_lines(path, schema):
        events, bare = without_null(_events(parsed.frame), "event_type")
        ended = events.filter(pl.col("event_type") == _END)
        kinds, started = _other_events(events.filter(pl.col("event_type") != _END), started)
        yield Batch(_requests(ended, context), [*parsed.bad, *bare], kinds)


def _layout(path: Path) -> dict[str, Any]:
    """Fields of a line: events are wrapped, bare, or both by turns. Half of the fields take half of the time."""
    wrapped = {isinstance(value.get("event"), dict) for value in read_head(path).objects}
    return _SCHEMA if len(wrapped) != 1 else dict(_WRAPPED) if wrapped == {True} else dict(_EVENT)


def _events(lines: pl.DataFrame) -> pl.DataFrame:
    """Events of lines of any layout."""
    if "event" not in lines.columns:
        return lines
    inner = {name: pl.col("event").struct.field(name) for name in _EVENT}
    if "event_type" in lines.columns:
        wrapped = pl.col("event").is_not_null()
        inner = {name: pl.when(wrapped).then(field).otherwise(pl.col(name)) for name, field in inner.items()}
    return lines.select(ROW, *(field.alias(name) for name, field in inner.items()))


def _other_events(events: pl.DataFrame, started: pl.DataFrame) -> tuple[dict[str, int], pl.DataFrame]:
    """Events by kind, and the tool calls that have not ended. An end belongs to the start before it, and only once."""
    kind = pl.col("event_type")
    tool_call = pl.col("tool").struct.field("tool_call_id")
    calls = events.select(kind.alias("kind"), _session().alias("session"), tool_call.alias("call"), ROW)
    tools = calls.filter(pl.col("kind").is_in([_TOOL_START, *_TOOL_ENDS]))
    in_order = (
        pl.concat([started, tools.select(started.columns)])
        .sort(ROW)
        .with_columns(
            before=pl.col("kind").shift(1).over(_CALL), last=pl.int_range(pl.len()).reverse().over(_CALL) == 0
        )
    )
    starts = pl.col("kind") == _TOOL_START
    lost = in_order.filter(~starts & (pl.col("before") == _TOOL_START).not_().fill_null(value=True))["kind"]
    counts = Counter(calls["kind"].to_list()) - Counter(lost.to_list())
    counts.update((lost + "_without_start").to_list())
    return dict(counts), in_order.filter(starts & pl.col("last")).select(started.columns)


def _session() -> pl.Expr:
    """The conversation that an event belongs to; a harness may name it outside of the context."""
    agent = pl.col("agent_context").struct
    return pl.coalesce(
        agent.field("trajectory_id"), agent.field("program_id"), agent.field("session_id"), pl.col("session_id")
    )


def _requests(events: pl.DataFrame, context: ReadContext) -> pl.DataFrame:
    inner = ("worker", "replay", "finish_reason_metadata")
    request, worker, replay, finish = (pl.col(name).struct for name in ("request", *inner))
    flat = events.with_columns(request.field(name) for name in inner)
    received, wait, first = (request.field(f"{name}_ms") for name in ("request_received", "prefill_wait_time", "ttft"))

    def at(*parts: pl.Expr) -> pl.Expr:
        return whole_us(pl.sum_horizontal(parts, ignore_nulls=False), MS_US)

    def node(phase: str) -> pl.Expr:
        rank = worker.field(f"{phase}_dp_rank").fill_null(0).cast(pl.String)
        return worker.field(f"{phase}_worker_id").cast(pl.String) + "/dp" + rank

    return flat.select(
        request.field("request_id"),
        pl.lit(context.pool).alias("pool"),
        at(received).alias("arrived_at_us"),
        _session().alias("session_id"),
        request.field("model"),
        pl.coalesce(request.field("input_tokens"), replay.field("input_length")).alias("prompt_tokens"),
        request.field("output_tokens"),
        finish.field("finish_reason").replace_strict(_FINISH, default=None, return_dtype=pl.String),
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


READER = Reader("dynamo-request-trace", "requests", "Dynamo request trace", _sniff, _read)
