"""`llmservingsim-timeseries`: load of a vLLM engine once a second, as LLMServingSim's benchmark records it, CSV.

Source: casys-kaist/LLMServingSim bench (vLLM 0.19): t (seconds from the run's start, which needs a wall time),
prompt_throughput, gen_throughput, running, waiting, kv_cache_pct. One row a line. The node is the file's name, since
the file names none. The share of KV in use is not kept: without the engine's capacity it is no number of blocks (and it
is 0 throughout where it was not recorded). Throughputs are means that vLLM logs, no counters, and make no steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from features.readers.base import Batch, ReadContext, Reader
from features.readers.csv_lines import csv_header, read_csv_lines
from features.readers.head import Head
from features.readers.lines import ROW
from features.readers.traces import start_us, trace_name
from features.readers.units import SECOND_US, whole_us

_BLOCK_TOKENS = 16
"""vLLM's block; the row counts none."""
_COLUMNS = {"t": pl.Float64, "running": pl.Int64, "waiting": pl.Int64}


def _sniff(head: Head) -> str:
    if {*_COLUMNS, "gen_throughput", "kv_cache_pct"} <= set(csv_header(head.text)):
        return "the first line names t, running, waiting, gen_throughput and kv_cache_pct"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    starts_at_us = start_us(path, context)
    for parsed in read_csv_lines(path, _COLUMNS):
        frame = parsed.frame.select(
            whole_us(pl.col("t"), SECOND_US, since_us=starts_at_us).alias("observed_at_us"),
            pl.lit(trace_name(context)).alias("node"),
            pl.lit("colocated").alias("role"),
            pl.lit(_BLOCK_TOKENS, pl.Int64).alias("block_tokens"),
            pl.col("waiting").alias("waiting_requests"),
            pl.col("running").alias("running_requests"),
            ROW,
        )
        yield Batch(frame, parsed.bad)


READER = Reader(
    "llmservingsim-timeseries", "node_loads", "load of a vLLM run, relative seconds", _sniff, _read, needs_start=True
)
