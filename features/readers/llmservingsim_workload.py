"""`llmservingsim-workload`: requests that LLMServingSim sends, one JSON object a line.

Source: casys-kaist/LLMServingSim workloads: input_toks and output_toks are lengths, arrival_time_ns is nanoseconds from
the start, which needs a wall time. The token ids of prompts and answers are text in other letters and are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, most_have
from features.readers.head import Head
from features.readers.lines import ROW, read_lines
from features.readers.traces import row_ids, start_us

_NS_PER_US = 1_000
_SCHEMA: dict[str, Any] = {"input_toks": pl.Int64, "output_toks": pl.Int64, "arrival_time_ns": pl.Int64}


def _sniff(head: Head) -> str:
    if most_have(head.objects, *_SCHEMA):
        return "lines have input_toks, output_toks and arrival_time_ns"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    starts_at_us = start_us(path, context)
    for parsed in read_lines(path, _SCHEMA):
        frame = parsed.frame.select(
            row_ids(context),
            pl.lit(context.pool).alias("pool"),
            (pl.col("arrival_time_ns") // _NS_PER_US + starts_at_us).alias("arrived_at_us"),
            pl.col("input_toks").alias("prompt_tokens"),
            pl.col("output_toks").alias("output_tokens"),
            ROW,
        )
        yield Batch(frame, parsed.bad)


READER = Reader(
    "llmservingsim-workload",
    "requests",
    "workload of LLMServingSim, relative nanoseconds",
    _sniff,
    _read,
    needs_start=True,
)
