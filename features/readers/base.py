"""What a reader is: one format of log -> batches of rows of one canonical table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.head import Head
from features.readers.lines import ROW, BadLine


@dataclass(frozen=True, slots=True)
class ReadContext:
    """What a reader may need besides the file.

    `file`: the log's name for provenance and made-up ids. `starts_at_us`: wall time of a relative clock's 0.
    `headers`: request headers that class rules ask for. `trace`: what was replayed, where the log is of a replay.
    """

    pool: str
    file: str
    starts_at_us: int | None = None
    headers: tuple[str, ...] = ()
    trace: Path | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of the reader's table (any of its columns, plus `source_row`), and what did not become a row.

    Rows read = frame rows + bad lines + skipped. `told`: what people should know of rows of the frame -> how many.
    """

    frame: pl.DataFrame
    bad: list[BadLine] = field(default_factory=list)
    skipped: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reader:
    """A format. `sniff` says why the start of a file looks like it, or "" if it does not; `read` streams a file.

    `read` raises SourceError if the file cannot be read at all. `needs_start`: its clock is relative.
    """

    name: str
    table: str
    about: str
    sniff: Callable[[Head], str]
    read: Callable[[Path, ReadContext], Iterator[Batch]]
    needs_start: bool = False


HEADER_PREFIX = "header:"
"""Column of a captured request header: this and its name. Class rules read it; it is not stored."""


def most_have(objects: Sequence[Mapping[str, Any]], *keys: str, without: tuple[str, ...] = ()) -> bool:
    """More than half of the objects have all of `keys` and none of `without`."""
    fits = sum(all(key in value for key in keys) and not any(key in value for key in without) for value in objects)
    return fits * 2 > len(objects)


def other_pool(pool: str) -> pl.Expr:
    """Rows that name a pool other than `pool`."""
    return (pl.col("pool") != pool).fill_null(value=False)


def without_null(frame: pl.DataFrame, column: str) -> tuple[pl.DataFrame, list[BadLine]]:
    """Lines that have `column`; those without it are no lines of the format, and are bad rather than skipped."""
    rows = frame.filter(pl.col(column).is_null())[ROW].to_list()
    return frame.filter(pl.col(column).is_not_null()), [BadLine(row, f"{column}|nullability") for row in rows]
