"""Runs one reader over a file or bytes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from features.readers.base import Batch, ReadContext, Reader
from tests.features.logs import START_US


def batches(reader: Reader, path: Path, *, name: str = "", starts_at_us: int | None = START_US) -> list[Batch]:
    """Everything that the reader yields."""
    return list(reader.read(path, ReadContext("a", name or path.name, starts_at_us)))


def rows(reader: Reader, path: Path, *, name: str = "") -> pl.DataFrame:
    """All rows; the file has no bad line and nothing is skipped."""
    read = batches(reader, path, name=name)
    assert not [line for batch in read for line in batch.bad]
    assert not sum(sum(batch.skipped.values()) for batch in read)
    return pl.concat([batch.frame for batch in read])


def bad(read: list[Batch]) -> list[tuple[int, str]]:
    """(row, rule) of all bad lines, in the order that they were reported."""
    return [(line.row, line.rule) for batch in read for line in batch.bad]


def chunks_of(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Files are read in chunks of about `size` bytes."""
    monkeypatch.setattr("features.readers.plain.CHUNK_BYTES", size)
