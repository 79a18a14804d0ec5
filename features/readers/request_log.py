"""`routecal-requests`: the published request log, one JSON object a request (data/schemas/request-log.json)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import HEADER_PREFIX, Batch, ReadContext, Reader, most_have, other_pool
from features.readers.head import Head
from features.readers.lines import ROW, read_lines
from features.schemas import TABLES

PROVENANCE = ("arrival_spread_us", "source", "source_file", "source_row")


def log_columns() -> dict[str, Any]:
    """Fields of a line -> dtype: the table `requests` without provenance."""
    return {name: dtype for name, dtype in TABLES["requests"].dtypes.items() if name not in PROVENANCE}


def _sniff(head: Head) -> str:
    if most_have(head.objects, "request_id", "arrived_at_us", "prompt_tokens"):
        return "lines have request_id, arrived_at_us and prompt_tokens"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    schema = log_columns()
    if context.headers:
        schema["headers"] = pl.Struct({name: pl.String() for name in context.headers})
    for parsed in read_lines(path, schema):
        frame = parsed.frame
        mine = frame.filter(~other_pool(context.pool)).with_columns(pool=pl.lit(context.pool))
        captured = [pl.col("headers").struct.field(n).alias(HEADER_PREFIX + n) for n in context.headers]
        mine = mine.with_columns(captured).select(pl.exclude("headers"))
        yield Batch(mine, parsed.bad, {"other_pool": frame.height - mine.height})


READER = Reader("routecal-requests", "requests", f"request log of routecal, {ROW} = line", _sniff, _read)
