"""`dynamo-replay`: requests of NVIDIA Dynamo's offline replay (`report_jsonl_path`, 1.6), relative milliseconds.

A line is a request, written when it ended: workers, stage times, reused tokens, routing and admission history. Where a
request is activated it also joins the batch, and its first token comes with the next step. The report holds no block
hashes: the trace that was replayed does. Given with `--trace` (Mooncake format), it completes each request with its
hashes and its row's id, which is the same in every replay of it (features/readers/replay_trace.py); without it the id
is the report's own.

Not kept: when P's blocks were released, what routers believed to be cached, D's reuse at readmission, means of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, most_have
from features.readers.head import Head
from features.readers.lines import ROW, read_lines
from features.readers.replay_trace import ReplayedTrace
from features.readers.traces import start_us
from features.readers.units import MS_US, whole_us

_STAGES = {
    "arrival_time_ms": "arrived_at_us",
    "prefill_admit_ms": "prefill_started_at_us",
    "source_held_ms": "prefill_finished_at_us",
    "destination_reserved_ms": "transfer_started_at_us",
    "destination_activated_ms": "decode_admitted_at_us",
    "first_token_ms": "first_token_at_us",
    "last_token_ms": "finished_at_us",
}
_RANKS = pl.List(pl.Struct({"pool": pl.String(), "dp_rank": pl.Int64()}))
_FIELDS = {
    "uuid": pl.String(),
    **dict.fromkeys(_STAGES, pl.Float64()),
    "session_id": pl.String(),
    "input_length": pl.Int64(),
    "output_length": pl.Int64(),
    "reused_input_tokens": pl.Int64(),
    "prefill_worker_idx": pl.Int64(),
    "decode_worker_idx": pl.Int64(),
    "readmission_count": pl.Int64(),
    "terminal_status": pl.String(),
    "routing_history": _RANKS,
}
_ENDS = {"completed": "stop", "cancelled": "cancelled", "canceled": "cancelled", "rejected": "rejected"}


def node_name(phase: str, worker: pl.Expr, rank: pl.Expr) -> pl.Expr:
    """Prefill and decode workers are numbered apart from each other."""
    return pl.concat_str(pl.lit(f"{phase}-"), worker.cast(pl.String), pl.lit("/dp"), rank.cast(pl.String))


def _sniff(head: Head) -> str:
    if most_have(head.objects, "arrival_time_ms", "source_held_ms", "destination_activated_ms", "prefill_worker_idx"):
        return "lines have arrival_time_ms, source_held_ms, destination_activated_ms and prefill_worker_idx"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    starts_at_us = start_us(path, context)
    trace = None if context.trace is None else ReplayedTrace(context.trace)
    for parsed in read_lines(path, _FIELDS):
        frame, told = (parsed.frame, {}) if trace is None else trace.complete(parsed.frame)
        yield Batch(_requests(frame, context, starts_at_us), parsed.bad, told=told)


def _requests(frame: pl.DataFrame, context: ReadContext, starts_at_us: int) -> pl.DataFrame:
    joined = [name for name in ("block_tokens", "block_hashes", "block_hash_scope") if name in frame.columns]
    return frame.select(
        pl.coalesce("row_id", "uuid").alias("request_id") if joined else pl.col("uuid").alias("request_id"),
        pl.lit(context.pool).alias("pool"),
        *(whole_us(pl.col(at), MS_US, since_us=starts_at_us).alias(name) for at, name in _STAGES.items()),
        pl.col("session_id"),
        pl.col("input_length").alias("prompt_tokens"),
        pl.col("output_length").alias("output_tokens"),
        pl.col("terminal_status")
        .replace_strict(_ENDS, default="failed", return_dtype=pl.String)
        .alias("finish_reason"),
        pl.col("reused_input_tokens").alias("prefill_cached_tokens"),
        _node("prefill"),
        _node("decode"),
        pl.col("readmission_count").alias("preemptions"),
        *joined,
        ROW,
    )


def _node(phase: str) -> pl.Expr:
    mine = pl.element().struct.field("pool") == phase
    rank = pl.col("routing_history").list.eval(pl.element().struct.field("dp_rank").filter(mine)).list.last()
    return node_name(phase, pl.col(f"{phase}_worker_idx"), rank.fill_null(0)).alias(f"{phase}_node")


READER = Reader("dynamo-replay", "requests", "requests of a Dynamo offline replay", _sniff, _read, needs_start=True)
