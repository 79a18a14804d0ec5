"""Old and new rows of a partition as one sorted stream with each primary key once, in memory or beyond it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from features.parquet import read_parquet, row_count
from features.schemas import Table, with_all_columns
from features.staging import AT, Part, Staging

if TYPE_CHECKING:
    import duckdb

MEMORY_ROWS = 1_000_000
"""Held rows up to which a partition is merged in memory, if the new ones are in memory too."""
_BATCH_ROWS = 131_072
_HELD_FIRST = -(2**62)
_MEMORY = "512MB"


@dataclass(frozen=True, slots=True)
class Merged:
    """`batches`: rows of the partition afterwards, in the table's order; None if it stays as it is.

    `added` new rows came in, `duplicates` had a key that was there already or came twice.
    """

    batches: Iterator[pl.DataFrame] | None
    added: int
    duplicates: int


def merge_parts(
    table: Table, held: Path | None, parts: Sequence[Part], staging: Staging, *, replacing: str | None = None
) -> Merged:
    """Merges staged parts into the rows of the file `held`. The first row of a key stays, held ones first.

    Held rows whose `source` is `replacing` give way: they were derived and are derived anew.
    """
    small = all(isinstance(part, pl.DataFrame) for part in parts)
    if small and (held is None or row_count(held) <= MEMORY_ROWS):
        return _in_memory(table, held, [part for part in parts if isinstance(part, pl.DataFrame)], replacing)
    return _beyond_memory(table, held, parts, staging, replacing)


def _in_memory(table: Table, held: Path | None, parts: list[pl.DataFrame], replacing: str | None) -> Merged:
    old = with_all_columns(table.name, pl.DataFrame())
    if held is not None:
        old = with_all_columns(table.name, read_parquet(held)[0])
    before = old.height
    if replacing is not None:
        old = old.filter(pl.col("source").ne_missing(pl.lit(replacing)))
    new = with_all_columns(table.name, pl.concat(parts).sort(AT)) if parts else old.clear()
    key = list(table.key)
    unique = pl.concat([old, new]).unique(subset=key, keep="first", maintain_order=True)
    added = unique.height - old.height
    changed = bool(added) or old.height < before or held is None
    ordered = unique.sort(table.order, maintain_order=True)
    return Merged(iter([ordered]) if changed else None, added, new.height - added)


def _beyond_memory(
    table: Table, held: Path | None, parts: Sequence[Part], staging: Staging, replacing: str | None
) -> Merged:
    """duckdb sorts with spill. Keys are looked at first: only where one repeats must rows be picked out."""
    connection = spilling(staging.folder)
    paths = [_on_disk(part, staging) for part in parts]
    columns = ", ".join(f'"{name}"' for name in table.dtypes)
    held_rows = dropped = 0
    sources = [_missing_as_null(table, paths, AT)]
    if held is not None:
        stays = "true" if replacing is None else f"source IS DISTINCT FROM {quoted(replacing)}"
        numbered = f"SELECT *, file_row_number + ({_HELD_FIRST}) AS {AT}"
        file = f"read_parquet({quoted(held)}, file_row_number = true)"
        connection.execute(f"CREATE VIEW held AS {numbered} FROM {file}")
        everything, held_rows = _first_row(connection, f"SELECT count(*), count(*) FILTER ({stays}) FROM held")
        dropped = everything - held_rows
        sources.append(f"SELECT * FROM held WHERE {stays}")
    connection.execute(f"CREATE VIEW rows AS {' UNION ALL BY NAME '.join(sources)}")
    key = ", ".join(f'"{name}"' for name in table.key)
    total, distinct = _first_row(connection, f"SELECT count(*), count(DISTINCT ({key})) FROM rows")
    staged = total - held_rows
    added = distinct - held_rows
    if held is not None and not added and not dropped:
        connection.close()
        return Merged(None, 0, staged)
    where = ""
    if distinct < total:
        connection.execute(f"CREATE TEMP TABLE kept AS SELECT min({AT}) AS {AT} FROM rows GROUP BY {key}")
        where = f"WHERE {AT} IN (SELECT {AT} FROM kept)"
    order = ", ".join(f'"{name}"' for name in table.order)
    sql = f"SELECT {columns} FROM rows {where} ORDER BY {order}"
    return Merged(_stream(connection, sql, table), added, staged - added)


def spilling(folder: Path) -> duckdb.DuckDBPyConnection:
    """An in-memory connection that spills to `folder`."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET memory_limit = '{_MEMORY}'")
    connection.execute(f"SET temp_directory = {quoted(folder / 'spill')}")
    connection.execute("SET preserve_insertion_order = false")
    return connection


def batches(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[pl.DataFrame]:
    """The rows of a query, some at a time."""
    for batch in connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
        frame = pl.from_arrow(batch)
        assert isinstance(frame, pl.DataFrame)
        yield frame


def quoted(text: str | Path) -> str:
    """As a literal of SQL."""
    return "'" + str(text).replace("'", "''") + "'"


def _stream(connection: duckdb.DuckDBPyConnection, sql: str, table: Table) -> Iterator[pl.DataFrame]:
    try:
        for frame in batches(connection, sql):
            yield with_all_columns(table.name, frame)
    finally:
        connection.close()


def _missing_as_null(table: Table, paths: Sequence[Path], *more: str) -> str:
    """A relation over staged parts; parts of several readers may have columns in another order."""
    names = ", ".join(f'"{name}"' for name in (*table.dtypes, *more))
    listed = ", ".join(map(quoted, paths))
    return f"SELECT {names} FROM read_parquet([{listed}], union_by_name = true)"


def _on_disk(part: Part, staging: Staging) -> Path:
    if isinstance(part, Path):
        return part
    path = staging.new_part()
    part.write_parquet(path, compression="lz4", statistics=False)
    return path


def _first_row(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[int, int]:
    ((first, second),) = connection.execute(sql).fetchall()
    return int(first), int(second)
