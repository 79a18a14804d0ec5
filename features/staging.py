"""Rows of an ingest that wait for their partition: in memory while they are few, then on disk below the lake."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import IO

import polars as pl

from features.errors import LakeError
from features.parquet import raise_if_of_disk
from features.schemas import PROVENANCE, TABLES

HELD_BYTES = 32 << 20
"""Rows of all files together that are held in memory before they are spilled."""
PART_BYTES = 16 << 20
"""A file on disk is about this large before packing."""
_PART_GROUP_ROWS = 4_096
AT = "_at"
"""Column of staged rows: their place in the ingest, so that the first of a key stays."""
Part = pl.DataFrame | Path
Key = tuple[str, date]


class Staging:
    """A folder of one ingest, removed at its end; what a killed ingest left behind is removed by the next one.

    Use as a context manager. Nothing is made on disk before rows are spilled.
    """

    def __init__(self, root: Path) -> None:
        self._folder = root / ".staging"
        self._own: Path | None = None
        self._lock: IO[str] | None = None
        self._numbers = count()
        self.at = 0
        self.held_bytes = 0

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own is not None and self._lock is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            self._lock.close()
            self._own.with_suffix(".lock").unlink(missing_ok=True)
            if not any(self._folder.iterdir()):
                self._folder.rmdir()

    @property
    def folder(self) -> Path:
        """The ingest's own folder, made at its first use.

        Raises LakeError if it cannot be made.
        """
        if self._own is None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._clear_abandoned()
                self._own, self._lock = self._take()
            except OSError as error:
                raise LakeError("a lake must be writable", value=error.strerror, place=str(self._folder)) from error
        return self._own

    def file(self) -> StagedFile:
        """Where the rows of one log are staged."""
        return StagedFile(self)

    def new_part(self) -> Path:
        """A path that no other part has."""
        return self.folder / f"{next(self._numbers):06d}.parquet"

    def _take(self) -> tuple[Path, IO[str]]:
        for number in count():
            lock = (self._folder / f"{number}.lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            own = self._folder / str(number)
            own.mkdir(exist_ok=True)
            return own, lock
        raise AssertionError

    def _clear_abandoned(self) -> None:
        for path in self._folder.glob("*.lock"):
            with path.open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # its ingest is at work
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)


@dataclass(slots=True)
class StagedFile:
    """Rows of one log by (table, day), in the order in which they came."""

    staging: Staging
    parts: dict[Key, list[Part]] = field(default_factory=dict)
    rows: dict[Key, int] = field(default_factory=dict)
    _bytes: int = 0

    def add(self, table: str, day: date, frame: pl.DataFrame) -> None:
        """Stages rows of one table and day."""
        key = (table, day)
        at = self.staging.at
        self.staging.at += frame.height
        placed = _known(table, frame).with_columns(pl.int_range(at, at + frame.height, dtype=pl.Int64).alias(AT))
        self.parts.setdefault(key, []).append(placed)
        self.rows[key] = self.rows.get(key, 0) + frame.height
        size = int(frame.estimated_size())
        self._bytes += size
        self.staging.held_bytes += size
        if self.staging.held_bytes > HELD_BYTES and self._bytes > PART_BYTES:
            self.spill()

    def spill(self) -> None:
        """Moves what is held in memory to disk."""
        for (table, _), parts in self.parts.items():
            held = [part for part in parts if isinstance(part, pl.DataFrame)]
            if held:
                path = self.staging.new_part()
                write_part(path, pl.concat(held, how="diagonal"), table)
                parts[:] = [*(part for part in parts if isinstance(part, Path)), path]
        self.staging.held_bytes -= self._bytes
        self._bytes = 0

    def drop(self) -> None:
        """Forgets all rows: the log cannot be read after all."""
        for parts in self.parts.values():
            for part in parts:
                if isinstance(part, Path):
                    part.unlink(missing_ok=True)
        self.parts.clear()
        self.rows.clear()
        self.staging.held_bytes -= self._bytes
        self._bytes = 0

    def frames(self, table: str) -> Iterator[pl.DataFrame]:
        """Staged rows of a table, part by part."""
        for (name, _), parts in self.parts.items():
            if name == table:
                yield from (load(part, table) for part in parts)

    def rewrite(self, table: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        """Replaces every part of a table by what `change` makes of it; it may drop rows."""
        for key, parts in self.parts.items():
            if key[0] != table:
                continue
            for i, part in enumerate(parts):
                before = load(part, table)
                after = change(before)
                self.rows[key] -= before.height - after.height
                if isinstance(part, Path):
                    write_part(part, _known(table, after), table)
                else:
                    parts[i] = _known(table, after)


def load(part: Part, table: str) -> pl.DataFrame:
    """The rows of a part with all columns of its table."""
    frame = pl.read_parquet(part) if isinstance(part, Path) else part
    return frame.with_columns(
        pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in TABLES[table].dtypes.items()
        if name not in frame.columns
    )


def _known(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Without the columns of which no row knows anything: most logs fill a few of a table's columns."""
    kept = {*TABLES[table].key, *TABLES[table].order, *PROVENANCE}
    return frame.select(name for name in frame.columns if name in kept or frame[name].null_count() < frame.height)


def write_part(path: Path, frame: pl.DataFrame, table: str) -> None:
    """A part on disk, by time in small row groups, so that a range of time is read without the rest.

    Raises LakeError if it cannot be written.
    """
    ordered = frame.sort(TABLES[table].time_column, AT)
    try:
        ordered.write_parquet(path, compression="lz4", statistics=True, row_group_size=_PART_GROUP_ROWS)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise_if_of_disk(error, path)
        raise
