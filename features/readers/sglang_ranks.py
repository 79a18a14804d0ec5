"""What SGLang says about the load of its DP ranks -> columns of `node_loads`."""

from __future__ import annotations

from typing import Any

import polars as pl

from features.readers.lines import ROW
from features.schemas import DECODE_MOMENTS

_BEYOND = -2
_GIB = 1 << 30
LOAD: dict[str, Any] = {
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
    "memory": pl.Struct({"token_capacity": pl.Int64()}),
    "disaggregation": pl.Struct(
        {
            "mode": pl.String(),
            "prefill_bootstrap_queue_reqs": pl.Int64(),
            "prefill_inflight_queue_reqs": pl.Int64(),
            "decode_prealloc_queue_reqs": pl.Int64(),
            "decode_transfer_queue_reqs": pl.Int64(),
            "decode_retracted_queue_reqs": pl.Int64(),
            "kv_transfer_speed_gb_s": pl.Float64(),
            "kv_transfer_latency_ms": pl.Float64(),
        }
    ),
    "queues": pl.Struct({"paused": pl.Int64()}),
}
"""Fields of an entry of `loads` that are read; all are flat but the last three, which are sections."""
_SECTIONS = {name: dtype for name, dtype in LOAD.items() if isinstance(dtype, pl.Struct)}


def samples(polls: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Rows of `node_loads` from polls (polled_at_us, target, loads, ROW), and how many ranks had not started.

    The engine publishes a rank's state before its first pass with zeros everywhere: that is no idle rank.
    """
    load = pl.col("load").struct
    flat = (
        polls.select("polled_at_us", "target", pl.col("loads").alias("load"), ROW)
        .explode("load")
        .select("polled_at_us", "target", ROW, *(load.field(name) for name in LOAD))
        .with_columns(
            pl.col("disaggregation").is_null().alias("silent"),
            *(pl.col(section).struct.field(name) for section, dtype in _SECTIONS.items() for name in dtype.to_schema()),
        )
    )
    started = flat.filter((pl.col("max_total_num_tokens") != 0).fill_null(value=True))
    return _columns(_known(started)), flat.height - started.height


def _known(rows: pl.DataFrame) -> pl.DataFrame:
    """-1 stands for unknown; any other negative value stays and breaks its rule. A mode of "null" is none."""
    numbers = [name for name, dtype in rows.schema.items() if dtype.is_numeric() and name not in (ROW, "dp_rank")]
    return rows.with_columns(
        *(pl.when(pl.col(name) == -1).then(None).otherwise(pl.col(name)).alias(name) for name in numbers),
        pl.when(pl.col("mode") != "null").then("mode").alias("mode"),
    )


def _columns(rows: pl.DataFrame) -> pl.DataFrame:
    used, usable = pl.col("num_used_tokens"), pl.coalesce("max_total_num_tokens", "token_capacity")
    active = pl.min_horizontal(used, pl.coalesce("num_active_tokens", used))
    decode, prefill = pl.col("mode") == "decode", pl.col("mode") == "prefill"
    sending, receiving = pl.col("prefill_inflight_queue_reqs"), pl.col("decode_transfer_queue_reqs")
    on_the_way = pl.when(decode).then(receiving).otherwise(sending).fill_null(0)
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
        (pl.col("num_waiting_reqs") - on_the_way).clip(0).alias("waiting_requests"),
        pl.col("num_waiting_uncached_tokens").alias("waiting_prompt_tokens"),
        pl.col("num_running_reqs").alias("running_requests"),
        pl.when(decode).then(active).alias("running_tokens"),
        pl.when(prefill).then("prefill_bootstrap_queue_reqs").alias("bootstrap_requests"),
        pl.when(prefill).then(sending).alias("transferring_requests"),
        pl.when(decode).then("decode_prealloc_queue_reqs").alias("prealloc_requests"),
        pl.when(decode).then(receiving).alias("receiving_requests"),
        pl.when(decode).then("decode_retracted_queue_reqs").alias("retracted_requests"),
        pl.col("paused").alias("paused_requests"),
        # 0 until the first transfer ended.
        pl.when(pl.col("kv_transfer_speed_gb_s") != 0)
        .then(pl.col("kv_transfer_speed_gb_s") * _GIB)
        .alias("last_transfer_bytes_per_s"),
        pl.when(pl.col("kv_transfer_latency_ms") != 0)
        .then(_whole(pl.col("kv_transfer_latency_ms") * 1_000))
        .alias("last_transfer_us"),
        _whole(pl.col("total_prefill_busy_us")).alias("prefill_busy_us"),
        pl.col("total_prefill_uncached_tokens").alias("prefill_computed_tokens"),
        moments,
        moments.list.get(DECODE_MOMENTS - 1, null_on_oob=True)
        .round()
        .cast(pl.Int64, strict=False)
        .alias("generated_tokens"),
        ROW,
    )


def _whole(value: pl.Expr) -> pl.Expr:
    """The nearest integer. A number that int64 cannot hold stays wrong: it becomes _BEYOND, which breaks its rule."""
    whole = value.round().cast(pl.Int64, strict=False)
    return pl.when(value.is_not_null() & whole.is_null()).then(_BEYOND).otherwise(whole)


def node_name() -> pl.Expr:
    """`<worker>/dp<rank>`; the worker is the polled URL without scheme and path until an alias names it."""
    worker = pl.col("target").str.replace(r"^[A-Za-z][A-Za-z0-9+.-]*://", "").str.replace(r"/.*$", "")
    return worker + "/dp" + pl.col("dp_rank").fill_null(0).cast(pl.String)
