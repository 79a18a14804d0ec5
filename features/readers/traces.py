"""What public traces have in common: requests without an id, clocks that start at 0."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from features.errors import SourceError
from features.readers.base import ReadContext
from features.readers.lines import ROW

_SUFFIXES = r"(\.(jsonl|ndjson|json|log|csv|txt|gz|zst))+$"

_PADDING = 1_000_000_000
"""Line numbers have nine digits."""


def trace_name(context: ReadContext) -> str:
    """The file's name without what tells its format."""
    return re.sub(_SUFFIXES, "", context.file)


def row_ids(context: ReadContext) -> pl.Expr:
    """Request ids made of the file's name and the line number: the same file gives the same ids."""
    digits = (pl.col(ROW) + _PADDING).cast(pl.String).str.slice(1)  # twice as fast as filling with zeros
    return pl.concat_str(pl.lit(f"{trace_name(context)}-"), digits).alias("request_id")


def start_us(path: Path, context: ReadContext) -> int:
    """Wall time of the trace's 0.

    Raises SourceError if nobody gave it.
    """
    if context.starts_at_us is None:
        raise SourceError(
            "a trace with a relative clock needs the time at which it starts",
            place=str(path),
            hint="give --starts-at, for example --starts-at 2026-01-05T09:00:00Z",
        )
    return context.starts_at_us
