"""The lake: one Parquet file a table, pool and UTC day.

    <root>/<table>/pool=<pool>/day=<YYYY-MM-DD>/part.parquet
    <root>/quarantine/<table>/pool=<pool>/source=<digest of the log>.parquet
    <root>/.staging/                        rows of an ingest under way
    <root>/.private/                        what hashed names mean; never leaves the machine

A partition is written whole or not at all, is the same bytes when rebuilt from the same rows and sources, and names the
digests of the logs that it came from.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from features.errors import LakeError
from features.merge import merge_parts
from features.parquet import file_digest, read_parquet, read_sources, row_count, write_rows
from features.schemas import QUARANTINE, TABLES, with_all_columns
from features.staging import Part, Staging

if TYPE_CHECKING:
    import duckdb

_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PART = "part.parquet"
DAY_FOLDER = f"day={'[0-9]' * 4}-{'[0-9]' * 2}-{'[0-9]' * 2}"
"""Pattern of the folders of days."""


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
        with Staging(self.root) as staging:
            staged = staging.file()
            staged.add(table, day, with_all_columns(table, frame))
            return self.merge_staged(table, day, pool, staged.parts[table, day], staging, sources=sources)

    def merge_staged(
        self,
        table: str,
        day: date,
        pool: str,
        parts: Sequence[Part],
        staging: Staging,
        *,
        sources: Mapping[str, str],
        replacing: str | None = None,
    ) -> MergeResult:
        """As `merge`, of parts of any size. Held rows whose `source` is `replacing` give way to the new ones."""
        path = self.path(table, day, pool)
        with self._locked(table, day, pool):
            held = path if path.exists() else None
            held_sources = read_sources(path) if held else {}
            merged = merge_parts(TABLES[table], held, parts, staging, replacing=replacing)
            if merged.batches is not None:
                self._sink(path, merged.batches, table, {**held_sources, **sources})
            partition = Partition(table, pool, day, row_count(path), file_digest(path))
            return MergeResult(merged.added, merged.duplicates, partition)

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
        """Days that have a partition, ascending. A folder that is named otherwise (somebody's copy) is none."""
        found = self._pool_folder(table, pool).glob(f"{DAY_FOLDER}/{_PART}")
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

    def write_quarantine(self, table: str, pool: str, source_digest: str, frames: Iterable[pl.DataFrame]) -> Path:
        """Keeps the rows of one log that broke a rule; the same log replaces its own file."""
        self._pool_folder(table, pool)
        folder = self.root / "quarantine" / table / f"pool={pool}"
        path = folder / f"source={source_digest[:16]}.parquet"
        write_rows(path, frames, pl.DataFrame(schema=QUARANTINE), {"digest": source_digest})
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
        ordered = frame.sort(spec.order, maintain_order=True)
        self._sink(path, [ordered], table, sources)
        return Partition(table, pool, day, ordered.height, file_digest(path))

    def _sink(self, path: Path, batches: Iterable[pl.DataFrame], table: str, sources: Mapping[str, str]) -> None:
        for left in path.parent.glob(f".{_PART}.*.tmp"):  # of a writer that was killed: we hold the lock
            left.unlink(missing_ok=True)
        write_rows(path, batches, with_all_columns(table, pl.DataFrame()), sources)

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
