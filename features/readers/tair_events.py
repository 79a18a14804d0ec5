"""`tair-kvcache-events`: events of the Tair KV-cache manager (alibaba/tair-kvcache), one JSON object a line.

A lookup (`GetCacheLocation`) names the blocks of a prompt by chained keys, signed 64 bit, and so becomes a piece of a
request: what was asked of the cache and when. Nothing in it says which request, so it stays a piece in `request_parts`.
Writes of blocks are skipped by their type; token ids are never kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, most_have, without_null
from features.readers.head import Head
from features.readers.lines import ROW, read_lines

_LOOKUP = "GetCacheLocation"
_RANK = 9
"""What an engine or router knows of a request is believed first."""
_SCHEMA: dict[str, Any] = {
    "id": pl.String,
    "source": pl.String,
    "type": pl.String,
    "trigger_time_us": pl.Int64,
    "keys": pl.List(pl.Int64),
}


def _sniff(head: Head) -> str:
    if most_have(head.objects, "id", "component", "type", "trigger_time_us"):
        return "lines are events with component, type and trigger_time_us"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    del context
    for parsed in read_lines(path, _SCHEMA):
        events, bare = without_null(parsed.frame, "type")
        lookups = events.filter(pl.col("type") == _LOOKUP)
        others = events.filter(pl.col("type") != _LOOKUP)["type"].value_counts().rows()
        rows = lookups.select(
            pl.col("id").alias("request_id"),
            ("cache.lookup/" + pl.col("id")).alias("part"),
            pl.col("trigger_time_us").alias("part_at_us"),
            pl.lit(_RANK, pl.Int64).alias("rank"),
            # The same 64 bits without a sign, as hashes are everywhere else.
            pl.col("keys").list.eval(pl.element().reinterpret(signed=False)).alias("block_hashes"),
            pl.col("source").alias("block_hash_scope"),
            ROW,
        )
        yield Batch(rows, [*parsed.bad, *bare], {str(kind): int(count) for kind, count in others})


READER = Reader("tair-kvcache-events", "request_parts", "events of the Tair KV-cache manager", _sniff, _read)
