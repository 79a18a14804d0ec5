"""The lake: one Parquet file a table, pool and UTC day.

    <root>/<table>/pool=<pool>/day=<YYYY-MM-DD>/part.parquet
    <root>/quarantine/<table>/pool=<pool>/source=<digest of the log>.parquet

A partition is written whole or not at all, is the same bytes when rebuilt from the same rows and sources, and names the
digests of the logs that it came from.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from features.errors import LakeError
from features.parquet import file_digest, parquet_bytes, read_parquet, read_sources, write_atomically
from features.schemas import TABLES, with_all_columns

if TYPE_CHECKING:
    import duckdb

_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PART = "part.parquet"


@dataclass(frozen=True, slots=True)
class Partition:
    """A written partition: where it is, its rows, and the SHA-256 of its bytes."""

    table: str
    pool: str
    day: date
    rows: int
    digest: str

    @property
    def name(self) -> str:
        """`<table>/pool=<pool>/day=<day>`, the path below the lake's root."""
        return f"{self.table}/pool={self.pool}/day={self.day.isoformat()}"


@dataclass(frozen=True, slots=True)
class MergeResult:
    """Rows that a merge added, rows whose key was there already, and the partition afterwards."""

    added: int
    duplicates: int
    partition: Partition


def check_pool_name(pool: str) -> str:
    """`pool`, if it can name a folder.

    Raises LakeError otherwise.
    """
    if not _POOL.fullmatch(pool):
        raise LakeError(
            "a pool's name must be 1..64 letters, digits, `.`, `_` or `-`, the first a letter or digit", value=pool
        )
    return pool


class Lake:
    """Reads and writes partitions below `root`. Nothing is made on disk before the first write."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, table: str, day: date, pool: str) -> Path:
        """Where a partition is, or would be.

        Raises LakeError for a table that does not exist or a pool name that cannot name a folder.
        """
        return self._pool_folder(table, pool) / f"day={day.isoformat()}" / _PART

    def write(self, table: str, day: date, pool: str, frame: pl.DataFrame, *, sources: Mapping[str, str]) -> Partition:
        """Replaces a partition by `frame`: missing columns become null, rows are sorted by the table's order.

        `sources`: name of a log -> its SHA-256. Raises LakeError if a primary key occurs twice.
        """
        with self._locked(table, day, pool):
            return self._write(table, day, pool, with_all_columns(table, frame), sources)

    def merge(
        self, table: str, day: date, pool: str, frame: pl.DataFrame, *, sources: Mapping[str, str]
    ) -> MergeResult:
        """Adds the rows whose primary key the partition does not hold; the first row of a key stays.

        A merge that adds nothing leaves the file untouched.
        """
        key = list(TABLES[table].key) if table in TABLES else []
        with self._locked(table, day, pool):
            path = self.path(table, day, pool)
            given = with_all_columns(table, frame)
            fresh = given.unique(subset=key, keep="first", maintain_order=True)
            if not path.exists():
                partition = self._write(table, day, pool, fresh, sources)
                return MergeResult(fresh.height, given.height - fresh.height, partition)
            held, held_sources = read_parquet(path)
            fresh = fresh.join(held.select(key), on=key, how="anti", maintain_order="left")
            if fresh.is_empty():
                return MergeResult(0, given.height, Partition(table, pool, day, held.height, file_digest(path)))
            whole = pl.concat([with_all_columns(table, held), fresh])
            partition = self._write(table, day, pool, whole, {**held_sources, **sources})
            return MergeResult(fresh.height, given.height - fresh.height, partition)

    def read(self, table: str, day: date, pool: str) -> pl.DataFrame:
        """A partition's rows in the table's order. A partition that does not exist has no rows."""
        path = self.path(table, day, pool)
        if not path.exists():
            return with_all_columns(table, pl.DataFrame())
        return with_all_columns(table, read_parquet(path)[0])

    def scan(self, table: str, days: Sequence[date], pool: str) -> pl.LazyFrame:
        """The rows of several days, in order of the days given; days without a partition are left out."""
        paths = [path for day in days if (path := self.path(table, day, pool)).exists()]
        empty = with_all_columns(table, pl.DataFrame()).lazy()
        if not paths:
            return empty
        return pl.concat([empty, *(pl.scan_parquet(path, glob=False) for path in paths)], how="diagonal")

    def days(self, table: str, pool: str) -> list[date]:
        """Days that have a partition, ascending."""
        found = self._pool_folder(table, pool).glob(f"day=*/{_PART}")
        return sorted(date.fromisoformat(path.parent.name.removeprefix("day=")) for path in found)

    def pools(self, table: str = "requests") -> list[str]:
        """Pools that have a partition of `table`, sorted."""
        found = (self.root / table).glob(f"pool=*/day=*/{_PART}")
        return sorted({path.parent.parent.name.removeprefix("pool=") for path in found})

    def digest(self, table: str, day: date, pool: str) -> str:
        """SHA-256 of a partition's bytes.

        Raises LakeError if there is no such partition.
        """
        return file_digest(self._existing(table, day, pool))

    def sources(self, table: str, day: date, pool: str) -> dict[str, str]:
        """Logs that a partition came from, with their SHA-256.

        Raises LakeError if there is no such partition.
        """
        return read_sources(self._existing(table, day, pool))

    def write_quarantine(self, table: str, pool: str, source_digest: str, frame: pl.DataFrame) -> Path:
        """Keeps the rows of one log that broke a rule; the same log replaces its own file."""
        self._pool_folder(table, pool)
        folder = self.root / "quarantine" / table / f"pool={pool}"
        path = folder / f"source={source_digest[:16]}.parquet"
        write_atomically(path, parquet_bytes(frame, {"digest": source_digest}))
        return path

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A duckdb connection with one view a table (plus `day`, `pool`) and the views of features/sql."""
        from features.views import connect

        return connect(self.root)

    def _pool_folder(self, table: str, pool: str) -> Path:
        if table not in TABLES:
            raise LakeError("a table must be one of the canonical tables", value=table, hint=f"one of {sorted(TABLES)}")
        return self.root / table / f"pool={check_pool_name(pool)}"

    def _existing(self, table: str, day: date, pool: str) -> Path:
        path = self.path(table, day, pool)
        if not path.exists():
            raise LakeError("a partition must exist", value=f"{table} {day} {pool}", place=str(self.root))
        return path

    def _write(self, table: str, day: date, pool: str, frame: pl.DataFrame, sources: Mapping[str, str]) -> Partition:
        spec = TABLES[table]
        if frame.select(pl.struct(spec.key).is_duplicated().any()).item():
            raise LakeError("a primary key must occur once", value=spec.key, place=f"{table} {day} {pool}")
        path = self.path(table, day, pool)
        for left in path.parent.glob(f".{_PART}.*.tmp"):  # of a writer that was killed: we hold the lock
            left.unlink(missing_ok=True)
        ordered = frame.sort(spec.order, maintain_order=True)
        write_atomically(path, parquet_bytes(ordered, sources))
        return Partition(table, pool, day, ordered.height, file_digest(path))

    @contextmanager
    def _locked(self, table: str, day: date, pool: str) -> Iterator[None]:
        """Waits for other writers of the partition; the lock ends with the process that holds it."""
        folder = self.path(table, day, pool).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / ".lock").open("w")
        except OSError as error:
            raise LakeError("a lake must be writable", value=error.strerror, place=str(folder)) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
