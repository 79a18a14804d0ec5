"""One Parquet file, written whole or not at all and byte for byte the same from the same rows."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import polars as pl

from features.errors import LakeError
from features.files import whole_file, write_whole

SOURCES_KEY = "routecal.sources"
"""Key of the Parquet metadata that holds {source: digest} as JSON."""
_ROW_GROUP_ROWS = 32_768


def write_rows(path: Path, batches: Iterable[pl.DataFrame], empty: pl.DataFrame, sources: Mapping[str, str]) -> None:
    """Writes batches one after the other; `empty` has their columns. A few row groups are held in memory.

    Row groups are cut by rows, not by batches: nothing in the file depends on how the rows came, on the clock, the
    place or the number of threads. Raises LakeError if the file cannot be written.
    """
    try:
        with whole_file(path) as out:
            _sink(out, batches, empty, sources)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise_if_of_disk(error, path)
        raise


def raise_if_of_disk(error: Exception, path: Path) -> None:
    """Raises LakeError if writing `path` failed because of the machine: a full disk, a place that is closed to us.

    polars tells that in a text only, as a fault of the file's form; what it tells without is a fault of ours.
    """
    told = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
    if isinstance(error, OSError) or "(os error " in str(error):
        raise LakeError(
            "a file must be writable", value=told, place=str(path), hint="is there room on the disk?"
        ) from error


def parquet_bytes(frame: pl.DataFrame, sources: Mapping[str, str]) -> bytes:
    """The content of a file with the rows of `frame`, as `write_rows` writes it."""
    held = io.BytesIO()
    _sink(held, [frame], frame.clear(), sources)
    return held.getvalue()


def _sink(out: IO[bytes], batches: Iterable[pl.DataFrame], empty: pl.DataFrame, sources: Mapping[str, str]) -> None:
    from polars.io.plugins import register_io_source

    def groups(*_: object) -> Iterator[pl.DataFrame]:
        return _row_groups(batches)

    register_io_source(groups, schema=empty.schema).sink_parquet(
        out,
        compression="zstd",
        compression_level=3,
        statistics=True,
        row_group_size=_ROW_GROUP_ROWS,
        maintain_order=True,
        metadata={SOURCES_KEY: json.dumps(dict(sorted(sources.items())), separators=(",", ":"))},
    )


def _row_groups(batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    held: list[pl.DataFrame] = []
    height = 0
    for batch in batches:
        held.append(batch)
        height += batch.height
        if height >= _ROW_GROUP_ROWS:
            whole = pl.concat(held)
            full = height - height % _ROW_GROUP_ROWS
            for at in range(0, full, _ROW_GROUP_ROWS):
                yield whole.slice(at, _ROW_GROUP_ROWS).rechunk()
            held, height = [whole.slice(full)], height - full
    if height:
        yield pl.concat(held).rechunk()


def write_atomically(path: Path, content: bytes) -> None:
    """Puts `content` at `path`: temporary file beside it, fsync, rename, fsync of the folder.

    Raises LakeError if that cannot be done; the file is then what it was before.
    """
    try:
        write_whole(path, content)
    except OSError as error:
        raise LakeError("a file must be writable", value=error.strerror, place=str(path)) from error


def read_parquet(path: Path) -> tuple[pl.DataFrame, dict[str, str]]:
    """Rows and sources of a file.

    Raises LakeError if the file is damaged.
    """
    content = path.read_bytes()
    try:
        metadata = pl.read_parquet_metadata(io.BytesIO(content))
        frame = pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged(path, error) from error
    return frame, dict(json.loads(metadata.get(SOURCES_KEY, "{}")))


def row_count(path: Path) -> int:
    """Rows of a file, without reading them.

    Raises LakeError if the file is damaged.
    """
    try:
        return int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged(path, error) from error


def read_sources(path: Path) -> dict[str, str]:
    """Sources of a file, without its rows.

    Raises LakeError if the file is damaged.
    """
    try:
        return dict(json.loads(pl.read_parquet_metadata(path).get(SOURCES_KEY, "{}")))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> LakeError:
    return LakeError(
        "a partition must be a whole Parquet file",
        value=str(error).splitlines()[0],
        place=str(path),
        hint="remove the file and ingest its day again",
    )


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as hex digits."""
    with path.open("rb") as held:
        return hashlib.file_digest(held, "sha256").hexdigest()
