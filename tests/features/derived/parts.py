"""Runs a derivation over parts that readers make of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import polars as pl

from features.readers.base import ReadContext, Reader
from features.schemas import with_all_columns

SQL = Path(__file__).parents[3] / "features" / "derived"


def parts_of(reader: Reader, contents: Sequence[bytes], folder: Path) -> pl.DataFrame:
    """The parts of several files."""
    frames = []
    for at, content in enumerate(contents):
        log = folder / f"{at}.log"
        log.write_bytes(content)
        for batch in reader.read(log, ReadContext("a", log.name)):
            assert not batch.bad
            frames.append(with_all_columns(reader.table, batch.frame.with_columns(source=pl.lit(reader.name))))
    return pl.concat(frames)


def derived(table: str, file: str, parts: pl.DataFrame) -> pl.DataFrame:
    """Rows of `<file>.sql` over the parts, as a view named `table`."""
    connection = duckdb.connect()
    try:
        connection.register(table, parts)
        rows: pl.DataFrame = connection.sql((SQL / f"{file}.sql").read_text("utf-8")).pl()
        return rows
    finally:
        connection.close()
