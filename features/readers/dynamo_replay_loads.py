"""`dynamo-replay-telemetry`: samples of the pool in NVIDIA Dynamo's offline replay (`telemetry_jsonl_path`, 1.6).

A line is a sample of all workers, one row each, by relative milliseconds. Inactive blocks hold prefixes that nothing
uses: they are free and reclaimable. Samples do not tell the tokens of a block: it is the replayed format's. Values are
those of a worker's last finished pass. Not kept: traffic and preemptions of the whole pool, and the router's queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, most_have
from features.readers.dynamo_replay import node_name
from features.readers.head import Head
from features.readers.lines import ROW, read_lines
from features.readers.mooncake import BLOCK_TOKENS
from features.readers.traces import start_us
from features.readers.units import MS_US, whole_us

_COUNTS = ("active_blocks", "inactive_blocks", "total_blocks", "running_requests", "waiting_requests")
_WORKER = pl.Struct({"worker_id": pl.Int64(), "dp_rank": pl.Int64(), **dict.fromkeys(_COUNTS, pl.Int64())})
_PHASES = ("prefill", "decode")
_STATES = {"active": "ready", "draining": "draining", "starting": "recovering"}
_IDS = {f"{state}_{phase}_ids": pl.List(pl.Int64()) for state in _STATES for phase in _PHASES}
_FIELDS = {
    "sampled_at_ms": pl.Float64(),
    **{f"{phase}_scheduler_metrics": pl.List(_WORKER) for phase in _PHASES},
    **_IDS,
}


def _sniff(head: Head) -> str:
    if most_have(head.objects, "sampled_at_ms", "prefill_scheduler_metrics", "decode_scheduler_metrics"):
        return "lines have sampled_at_ms, prefill_scheduler_metrics and decode_scheduler_metrics"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    starts_at_us = start_us(path, context)
    for parsed in read_lines(path, _FIELDS):
        rows = pl.concat([_loads(parsed.frame, phase, starts_at_us) for phase in _PHASES])
        empty = parsed.frame.height - rows[ROW].n_unique()
        yield Batch(rows.sort(ROW, maintain_order=True), parsed.bad, {"sample_without_workers": empty})


def _loads(samples: pl.DataFrame, phase: str, starts_at_us: int) -> pl.DataFrame:
    workers = samples.explode(f"{phase}_scheduler_metrics").rename({f"{phase}_scheduler_metrics": "worker"})
    rows = workers.filter(pl.col("worker").is_not_null()).unnest("worker")
    state = pl.coalesce(
        pl.when(pl.col(f"{told}_{phase}_ids").list.contains(pl.col("worker_id"))).then(pl.lit(name))
        for told, name in _STATES.items()
    )
    return rows.select(
        whole_us(pl.col("sampled_at_ms"), MS_US, since_us=starts_at_us).alias("observed_at_us"),
        node_name(phase, pl.col("worker_id"), pl.col("dp_rank").fill_null(0)).alias("node"),
        pl.lit(phase).alias("role"),
        state.alias("state"),
        pl.lit(BLOCK_TOKENS, pl.Int64).alias("block_tokens"),
        pl.col("total_blocks").alias("usable_blocks"),
        "active_blocks",
        (pl.col("total_blocks") - pl.col("active_blocks")).alias("free_blocks"),
        pl.col("inactive_blocks").alias("reclaimable_blocks"),
        "running_requests",
        "waiting_requests",
        ROW,
    )


READER = Reader(
    "dynamo-replay-telemetry", "node_loads", "samples of a Dynamo offline replay", _sniff, _read, needs_start=True
)
