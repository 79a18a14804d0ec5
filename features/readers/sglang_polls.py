"""Polls as `GET /v1/loads` would have answered: the reader `sglang-loads` backwards, for emulated pools."""

from __future__ import annotations

import polars as pl

from features.readers.published import json_lines
from features.schemas import with_all_columns

_OK = 200
_GIB = 1 << 30


def poll_lines(node_loads: pl.DataFrame) -> bytes:
    """Rows of the table `node_loads` as recorded polls, one line a worker and sample, sorted by time and worker.

    Node `<worker>/dp<rank>` is rank <rank> of target http://<worker>. Blocks become tokens; on D the engine's active
    tokens are running_tokens where known. What SGLang does not tell (states, reserved blocks, …) is not written. A role
    of null or colocated gives no mode.
    """
    loads = with_all_columns("node_loads", node_loads)
    size = pl.col("block_tokens")
    decode, prefill = pl.col("role") == "decode", pl.col("role") == "prefill"
    held = pl.col("active_blocks") * size
    active = pl.when(decode).then(pl.coalesce("running_tokens", held)).otherwise(held)
    used = active + pl.when(decode).then(pl.col("inflight_blocks").fill_null(0) * size).otherwise(0)
    on_the_way = pl.when(decode).then("receiving_requests").when(prefill).then("transferring_requests").otherwise(0)
    load = pl.struct(
        pl.col("node").str.extract(r"/dp(\d+)$").cast(pl.Int64).fill_null(0).alias("dp_rank"),
        pl.col("running_requests").alias("num_running_reqs"),
        (pl.col("waiting_requests") + on_the_way.fill_null(0)).alias("num_waiting_reqs"),
        pl.col("waiting_prompt_tokens").alias("num_waiting_uncached_tokens"),
        used.alias("num_used_tokens"),
        (used + pl.col("queued_blocks").fill_null(0) * size).alias("num_total_tokens"),
        active.alias("num_active_tokens"),
        (pl.col("usable_blocks") * size).alias("max_total_num_tokens"),
        pl.col("prefill_computed_tokens").alias("total_prefill_uncached_tokens"),
        pl.col("prefill_busy_us").alias("total_prefill_busy_us"),
        pl.col("decode_moments"),
        pl.struct(
            pl.when(decode | prefill).then("role").alias("mode"),
            pl.when(prefill).then("bootstrap_requests").alias("prefill_bootstrap_queue_reqs"),
            pl.when(prefill).then("transferring_requests").alias("prefill_inflight_queue_reqs"),
            pl.when(decode).then("prealloc_requests").alias("decode_prealloc_queue_reqs"),
            pl.when(decode).then("receiving_requests").alias("decode_transfer_queue_reqs"),
            pl.when(decode).then("retracted_requests").alias("decode_retracted_queue_reqs"),
            (pl.col("last_transfer_bytes_per_s") / _GIB).alias("kv_transfer_speed_gb_s"),
            (pl.col("last_transfer_us") / 1_000).alias("kv_transfer_latency_ms"),
        ).alias("disaggregation"),
        pl.struct(pl.col("paused_requests").alias("paused")).alias("queues"),
    )
    return json_lines(
        loads.select(
            pl.col("observed_at_us").alias("polled_at_us"),
            ("http://" + pl.col("node").str.replace(r"/dp\d+$", "")).alias("target"),
            pl.lit(_OK, pl.Int64).alias("status"),
            load.alias("load"),
        )
        .group_by("polled_at_us", "target", "status")
        .agg(pl.col("load").sort_by(pl.col("load").struct.field("dp_rank")).alias("loads"))
        .sort("polled_at_us", "target")
        .select("polled_at_us", "target", "status", pl.struct("loads").alias("body"))
    )
