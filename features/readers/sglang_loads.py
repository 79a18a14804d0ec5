"""`sglang-loads`: recorded polls of SGLang's `GET /v1/loads`, one row a DP rank of a poll.

A line is {polled_at_us, target, status, body}. SGLang counts tokens, so `block_tokens` is 1. Its used tokens include
those that a transfer will fill and leave out evictable prefix: `free_blocks` holds that prefix, `reclaimable_blocks` is
unknown. A value of -1 or null, or one that is absent, is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, most_have, without_null
from features.readers.head import Head
from features.readers.lines import ROW, read_lines
from features.schemas import DECODE_MOMENTS

_OK = 200
_BEYOND = -2
_LOAD = {
    "dp_rank": pl.Int64(),
    "num_running_reqs": pl.Int64(),
    "num_waiting_reqs": pl.Int64(),
    "num_waiting_uncached_tokens": pl.Int64(),
    "num_used_tokens": pl.Int64(),
    "num_total_tokens": pl.Int64(),
    "num_active_tokens": pl.Int64(),
    "max_total_num_tokens": pl.Int64(),
    "total_prefill_uncached_tokens": pl.Int64(),
    "total_prefill_busy_us": pl.Float64(),
    "decode_moments": pl.List(pl.Float64()),
    "disaggregation": pl.Struct(
        {
            "mode": pl.String(),
            "prefill_inflight_queue_reqs": pl.Int64(),
            "decode_transfer_queue_reqs": pl.Int64(),
        }
    ),
}
_SCHEMA = {
    "polled_at_us": pl.Int64,
    "target": pl.String,
    "status": pl.Int64,
    "body": pl.Struct({"loads": pl.List(pl.Struct(_LOAD))}),
}


def _sniff(head: Head) -> str:
    if not most_have(head.objects, "polled_at_us", "target", "status", "body"):
        return ""
    bodies = [
        value["body"] for value in head.objects if isinstance(value.get("body"), dict) and value.get("status") == _OK
    ]
    answered = [body for body in bodies if "error" not in body]  # what the recorder puts for an answer that is no JSON
    if answered and not any("loads" in body for body in answered):
        return ""
    return "lines are polls (polled_at_us, target, status, body) whose body has loads"


def _repair(value: dict[str, Any]) -> None:
    """The body of a failed poll is whatever the target or a proxy said; nothing is read from it."""
    if value.get("status") != _OK:
        value["body"] = None
        value["status"] = None


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    del context
    for parsed in read_lines(path, _SCHEMA, repair=_repair):
        frame, nameless = without_null(parsed.frame, "target")
        failed = (pl.col("status") != _OK).fill_null(value=True)
        size = pl.col("body").struct.field("loads").list.len().fill_null(0)
        answered = frame.filter(~failed)
        filled = answered.filter(size > 0)
        skipped = {"failed_poll": frame.height - answered.height, "no_loads": answered.height - filled.height}
        yield Batch(_samples(filled), [*parsed.bad, *nameless], skipped)


def _samples(polls: pl.DataFrame) -> pl.DataFrame:
    load = pl.col("load").struct
    rows = (
        polls.with_columns(pl.col("body").struct.field("loads").alias("load"))
        .explode("load")
        .select("polled_at_us", "target", ROW, *(load.field(name) for name in _LOAD))
        .with_columns(
            pl.col("disaggregation").struct.field("mode"),
            pl.col("disaggregation").is_null().alias("silent"),
            pl.col("disaggregation").struct.field("prefill_inflight_queue_reqs").alias("sending"),
            pl.col("disaggregation").struct.field("decode_transfer_queue_reqs").alias("receiving"),
        )
    )
    numbers = [name for name, dtype in rows.schema.items() if dtype.is_numeric() and name not in (ROW, "dp_rank")]
    # -1 stands for unknown; any other negative value stays and breaks its rule.
    rows = rows.with_columns(
        pl.when(pl.col(name) == -1).then(None).otherwise(pl.col(name)).alias(name) for name in numbers
    )
    used, usable = pl.col("num_used_tokens"), pl.col("max_total_num_tokens")
    active = pl.min_horizontal(used, pl.coalesce("num_active_tokens", used))
    decode = pl.col("mode") == "decode"
    in_queue = pl.when(decode).then(pl.col("receiving")).otherwise(pl.col("sending")).fill_null(0)
    moments = pl.col("decode_moments")
    return rows.select(
        pl.col("polled_at_us").alias("observed_at_us"),
        node_name().alias("node"),
        # The engine's mode is null when it does not disaggregate; without the section nothing is known.
        pl.when("silent").then(None).otherwise(pl.col("mode").fill_null("colocated")).alias("role"),
        pl.lit(1, pl.Int64).alias("block_tokens"),
        usable.alias("usable_blocks"),
        pl.when(decode).then(active).otherwise(used).alias("active_blocks"),
        pl.when(decode & pl.col("num_active_tokens").is_not_null()).then(used - active).alias("inflight_blocks"),
        (usable - used).alias("free_blocks"),
        pl.when(decode).then((pl.col("num_total_tokens") - used).clip(0)).alias("queued_blocks"),
        # The engine's waiting count includes prompts whose KV is on the way; those have columns of their own.
        (pl.col("num_waiting_reqs") - in_queue).clip(0).alias("waiting_requests"),
        pl.col("num_waiting_uncached_tokens").alias("waiting_prompt_tokens"),
        pl.col("num_running_reqs").alias("running_requests"),
        pl.when(decode).then(active).alias("running_tokens"),
        pl.when(pl.col("mode") == "prefill").then(pl.col("sending")).alias("transferring_requests"),
        pl.when(decode).then(pl.col("receiving")).alias("receiving_requests"),
        _whole("total_prefill_busy_us").alias("prefill_busy_us"),
        pl.col("total_prefill_uncached_tokens").alias("prefill_computed_tokens"),
        moments,
        moments.list.get(DECODE_MOMENTS - 1, null_on_oob=True)
        .round()
        .cast(pl.Int64, strict=False)
        .alias("generated_tokens"),
        ROW,
    )


def _whole(name: str) -> pl.Expr:
    """The nearest integer. A number that int64 cannot hold stays wrong: it becomes _BEYOND, which breaks its rule."""
    whole = pl.col(name).round().cast(pl.Int64, strict=False)
    return pl.when(pl.col(name).is_not_null() & whole.is_null()).then(_BEYOND).otherwise(whole)


def node_name() -> pl.Expr:
    """`<worker>/dp<rank>`; the worker is the polled URL without scheme and path until an alias names it."""
    worker = pl.col("target").str.replace(r"^[A-Za-z][A-Za-z0-9+.-]*://", "").str.replace(r"/.*$", "")
    return worker + "/dp" + pl.col("dp_rank").fill_null(0).cast(pl.String)


READER = Reader("sglang-loads", "node_loads", "recorded polls of SGLang /v1/loads", _sniff, _read)
