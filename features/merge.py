"""Old and new rows of a partition as one sorted stream with each primary key once.

Few rows are merged in memory. Many are taken range of time by range of time: rows of a range are loaded, sorted
and given out, so memory is that of one range however large the partition is. Both ways give the same rows in the same
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from features.parquet import read_parquet, row_count
from features.schemas import Table, with_all_columns
from features.staging import AT, Part, Staging, write_part

if TYPE_CHECKING:
    import duckdb

MEMORY_ROWS = 200_000
"""Held rows up to which a partition is merged in memory, if the new ones are in memory too."""
RANGE_ROWS = 32_768
"""Rows of a range of time, about; rows of one moment are never parted."""
_BINS = 8_192
_HELD_FIRST = -(2**62)
_MEMORY = "256MB"
_BATCH_ROWS = 65_536


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
    old = with_all_columns(table.name, pl.DataFrame()) if held is None else read_parquet(held)[0]
    before = old.height
    if replacing is not None:
        old = old.filter(pl.col("source").ne_missing(pl.lit(replacing)))
    known = [frame for frame in (old, *parts) if frame.height] or [old]
    rows = pl.concat(known, how="diagonal")
    unique = rows.unique(subset=list(table.key), keep="first", maintain_order=True)
    added = unique.height - old.height
    changed = bool(added) or old.height < before or held is None
    ordered = with_all_columns(table.name, unique.sort(table.order, maintain_order=True))
    return Merged(iter([ordered]) if changed else None, added, rows.height - old.height - added)


def _beyond_memory(
    table: Table, held: Path | None, parts: Sequence[Part], staging: Staging, replacing: str | None
) -> Merged:
    paths = [_on_disk(part, table, staging) for part in parts]
    rows, dropped = _rows_of(table, held, paths, replacing)
    counts = rows.select(pl.len(), (pl.col(AT) >= 0).sum().alias("staged")).collect(engine="streaming").row(0)
    total, staged = int(counts[0]), int(counts[1])
    repeated = _repeated(table, held, paths, replacing, staging) if staged else pl.DataFrame(schema={AT: pl.Int64})
    kept = total - repeated.height
    added = kept - (total - staged)
    if held is not None and not added and not dropped:
        return Merged(None, 0, staged)
    return Merged(_by_range(table, rows, repeated), added, staged - added)


def _rows_of(table: Table, held: Path | None, paths: Sequence[Path], replacing: str | None) -> tuple[pl.LazyFrame, int]:
    """Held and staged rows with their place in AT, and how many held ones give way."""
    columns = list(table.dtypes)
    found = [_whole(table, pl.scan_parquet(path, glob=False)).select(*columns, AT) for path in paths]
    dropped = 0
    if held is not None:
        old = _whole(table, pl.scan_parquet(held, glob=False)).with_row_index(AT)
        old = old.with_columns(pl.col(AT).cast(pl.Int64) + _HELD_FIRST).select(*columns, AT)
        if replacing is not None:
            stays = pl.col("source").ne_missing(pl.lit(replacing))
            dropped = int(old.select((~stays).sum()).collect().item())
            old = old.filter(stays)
        found.insert(0, old)
    return pl.concat(found), dropped


def _whole(table: Table, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Rows with all columns: parts leave out what they do not know, and old partitions what did not exist yet."""
    known = rows.collect_schema().names()
    return rows.with_columns(
        pl.lit(None, dtype=dtype).alias(name) for name, dtype in table.dtypes.items() if name not in known
    )


def _repeated(
    table: Table, held: Path | None, paths: Sequence[Path], replacing: str | None, staging: Staging
) -> pl.DataFrame:
    """Places (AT) of rows whose key stands earlier, by duckdb on the keys alone, with spill."""
    key = ", ".join(f'"{name}"' for name in table.key)
    listed = ", ".join(map(quoted, paths))
    sources = [f"SELECT {key}, {AT} FROM read_parquet([{listed}], union_by_name = true)"] if paths else []
    if held is not None:
        stays = "true" if replacing is None else f"source IS DISTINCT FROM {quoted(replacing)}"
        file = f"read_parquet({quoted(held)}, file_row_number = true)"
        sources.append(f"SELECT {key}, file_row_number + ({_HELD_FIRST}) AS {AT} FROM {file} WHERE {stays}")
    connection = spilling(staging.folder)
    try:
        connection.execute(f"CREATE VIEW keys AS {' UNION ALL BY NAME '.join(sources)}")
        twice = f"SELECT {key}, min({AT}) AS first FROM keys GROUP BY {key} HAVING count(*) > 1"
        sql = f"SELECT {AT} FROM keys JOIN ({twice}) USING ({key}) WHERE {AT} > first"
        found: pl.DataFrame = connection.sql(sql).pl()
        return found
    finally:
        connection.close()


def _by_range(table: Table, rows: pl.LazyFrame, repeated: pl.DataFrame) -> Iterator[pl.DataFrame]:
    time = table.time_column
    for start, end in pairwise(_bounds(rows, time)):
        frame = rows.filter(pl.col(time) >= start, pl.col(time) < end).collect()
        if repeated.height:
            frame = frame.join(repeated, on=AT, how="anti", maintain_order="left")
        yield with_all_columns(table.name, frame.sort(table.order))


def _bounds(rows: pl.LazyFrame, time: str) -> list[int]:
    """Times that cut the rows into ranges of about RANGE_ROWS, the first and the last included."""
    low, high = rows.select(pl.min(time).alias("low"), pl.max(time).alias("high")).collect(engine="streaming").row(0)
    width = (high - low) // _BINS + 1
    bins = (
        rows.group_by(((pl.col(time) - low) // width).alias("bin"))
        .agg(pl.len())
        .collect(engine="streaming")
        .sort("bin")
    )
    bounds, waiting = [int(low)], 0
    for number, count in bins.iter_rows():
        if waiting and waiting + count > RANGE_ROWS:
            bounds.append(int(low + number * width))
            waiting = 0
        waiting += count
    return [*bounds, int(high) + 1]


def spilling(folder: Path, memory: str = _MEMORY) -> duckdb.DuckDBPyConnection:
    """An in-memory connection that spills to `folder`."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET memory_limit = '{memory}'")
    connection.execute(f"SET temp_directory = {quoted(folder / 'spill')}")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET enable_progress_bar = false")
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


def _on_disk(part: Part, table: Table, staging: Staging) -> Path:
    if isinstance(part, Path):
        return part
    path = staging.new_part()
    write_part(path, part, table.name)
    return path
