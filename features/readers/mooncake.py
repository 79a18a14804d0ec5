"""`mooncake`: {timestamp, input_length, output_length, hash_ids}, milliseconds of a relative clock, 512-token blocks.

The clock needs a wall time for its 0. Request ids are made of the file's name and the line number, so the same file
gives the same ids. Hash ids are global within one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.errors import SourceError
from features.readers.base import Batch, ReadContext, Reader, most_have
from features.readers.lines import ROW, read_lines

BLOCK_TOKENS = 512
_SCHEMA = {
    "timestamp": pl.Float64,
    "input_length": pl.Int64,
    "output_length": pl.Int64,
    "hash_ids": pl.List(pl.UInt64),
}
# Kin of this format with another clock, other blocks or lengths that are differences.
_KIN = ("chat_id", "delay", "session_id", "dependencies", "wait_for")


def _sniff(objects: list[dict[str, Any]]) -> str:
    if most_have(objects, "timestamp", "input_length", "output_length", without=_KIN):
        return "lines have timestamp, input_length and output_length"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    if context.starts_at_us is None:
        raise SourceError(
            "a trace with a relative clock needs the time at which it starts",
            place=str(path),
            hint="give --starts-at, for example --starts-at 2026-01-05T09:00:00Z",
        )
    stem = re.sub(r"(\.(jsonl|ndjson|json|log|gz))+$", "", context.file)
    for parsed in read_lines(path, _SCHEMA):
        offset_us = (pl.col("timestamp") * 1_000).round().cast(pl.Int64, strict=False)
        yield Batch(
            parsed.frame.select(
                pl.format("{}-{}", pl.lit(stem), pl.col(ROW).cast(pl.String).str.zfill(9)).alias("request_id"),
                pl.lit(context.pool).alias("pool"),
                (offset_us + context.starts_at_us).alias("arrived_at_us"),
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
