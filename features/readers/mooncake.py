"""`mooncake`: {timestamp, input_length, output_length, hash_ids}, milliseconds of a relative clock, 512-token blocks.

Source: kvcache-ai/Mooncake, FAST'25 traces. The clock needs a wall time for its 0; where it ticks coarsely (every 3 s
in the conversation trace) arrivals are spread inside their tick and marked, see features/readers/ticks.py. Request ids
are made of the file's name and the line number, so the same file gives the same ids. Hash ids are global within a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, most_have
from features.readers.head import Head
from features.readers.lines import ROW, read_lines
from features.readers.ticks import spread_ticks
from features.readers.traces import row_ids, start_us

BLOCK_TOKENS = 512
_SCHEMA = {
    "timestamp": pl.Float64,
    "input_length": pl.Int64,
    "output_length": pl.Int64,
    "hash_ids": pl.List(pl.UInt64),
}
# Kin of this format with another clock, other blocks or lengths that are differences.
_KIN = ("chat_id", "delay", "session_id", "dependencies", "wait_for")


def _sniff(head: Head) -> str:
    if most_have(head.objects, "timestamp", "input_length", "output_length", without=_KIN):
        return "lines have timestamp, input_length and output_length"
    return ""


def trace_rows(path: Path) -> pl.DataFrame:
    """The rows of a trace as they stand there, with `source_row`; lines that are none are left out.

    Raises SourceError if the file cannot be read.
    """
    return pl.concat([parsed.frame for parsed in read_lines(path, _SCHEMA)])


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    return spread_ticks(_requests(path, context, start_us(path, context)))


def _requests(path: Path, context: ReadContext, starts_at_us: int) -> Iterator[Batch]:
    for parsed in read_lines(path, _SCHEMA):
        offset_us = (pl.col("timestamp") * 1_000).round().cast(pl.Int64, strict=False)
        yield Batch(
            parsed.frame.select(
                row_ids(context),
                pl.lit(context.pool).alias("pool"),
                (offset_us + starts_at_us).alias("arrived_at_us"),
                pl.col("input_length").alias("prompt_tokens"),
                pl.col("output_length").alias("output_tokens"),
                pl.lit(BLOCK_TOKENS, pl.Int64).alias("block_tokens"),
                pl.col("hash_ids").alias("block_hashes"),
                pl.lit(context.file).alias("block_hash_scope"),
                ROW,
            ),
            parsed.bad,
        )


READER = Reader("mooncake", "requests", "Mooncake trace, relative milliseconds", _sniff, _read, needs_start=True)
