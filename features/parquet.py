"""One Parquet file, written whole or not at all and byte for byte the same from the same rows."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from features.errors import LakeError
from features.files import write_whole

SOURCES_KEY = "routecal.sources"
"""Key of the Parquet metadata that holds {source: digest} as JSON."""
_ROW_GROUP_ROWS = 131_072


def parquet_bytes(frame: pl.DataFrame, sources: Mapping[str, str]) -> bytes:
    """The file's content. Nothing in it depends on the clock, the place or the number of threads."""
    held = io.BytesIO()
    frame.rechunk().write_parquet(
        held,
        compression="zstd",
        compression_level=3,
        statistics=True,
        row_group_size=_ROW_GROUP_ROWS,
        metadata={SOURCES_KEY: json.dumps(dict(sorted(sources.items())), separators=(",", ":"))},
    )
    return held.getvalue()


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
