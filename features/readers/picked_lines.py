"""Logs of which some lines matter: the router's and the proxy's.

Lines that matter are found by their bytes and parsed together, a kind at a time; the others are only looked at as far
as telling damage from another message needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from features.readers.lines import (
    ROW,
    BadLine,
    Flags,
    Form,
    Lines,
    Parsed,
    cut_short,
    decode_object,
    lines_of,
    no_rows,
    parse,
)
from features.readers.plain import whole_lines


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows of a chunk's lines that matter, with their line number; damaged lines; how many lines were other ones."""

    frame: pl.DataFrame
    bad: list[BadLine] = field(default_factory=list)
    others: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """Lines that hold one of some texts, and what they are. Fields of the log that a kind has not are null."""

    texts: tuple[str, ...]
    form: Form


@dataclass(frozen=True, slots=True)
class Pick:
    """Kinds of lines that matter; a line is of the first kind of which it holds a text.

    `marks`: every line of the log that is not damaged holds one of them, as far as its bytes tell.
    """

    kinds: tuple[Kind, ...]
    marks: tuple[str, ...] = ()


def read_picked(path: Path, pick: Pick) -> Iterator[Picked]:
    """The lines that matter of a JSON-lines file (gzip and zstd by content), some MB at a time.

    A file that ends early yields what it holds and then one bad line `file_cut_short`.
    Raises SourceError if the file cannot be opened, is empty or is not text.
    """
    empty = pl.concat([no_rows(kind.form) for kind in pick.kinds], how="diagonal")
    for chunk in whole_lines(path):
        if chunk.cut_short:
            yield Picked(empty, [cut_short(chunk)])
            return
        yield _picked(lines_of(chunk), pick, empty)


def _picked(lines: Lines, pick: Pick, empty: pl.DataFrame) -> Picked:
    texts = pl.Series(pl.from_arrow(lines.texts.cast(pa.binary())))
    left = np.ones(len(texts), dtype=bool)
    parts: list[Parsed] = []
    for kind in pick.kinds:
        among = _hold(texts, kind.texts, left)
        if among.any():
            parts.append(parse(lines, kind.form, among))
        left &= ~among
    frame = pl.concat([empty, *(part.frame for part in parts)], how="diagonal")
    frame = frame.sort(ROW) if len(parts) > 1 else frame
    damaged, others = _others(lines, left & ~(lines.whole & _hold(texts, pick.marks, left)))
    bad = sorted([*damaged, *(line for part in parts for line in part.bad)], key=lambda line: line.row)
    return Picked(frame, bad, int(left.sum()) - len(damaged) - others)


def _others(lines: Lines, doubtful: Flags) -> tuple[list[BadLine], int]:
    """The damaged ones of lines of no kind, and how many are blank."""
    bad, blank = [], 0
    for row, line in lines.numbered(np.flatnonzero(doubtful)) if doubtful.any() else ():
        value, rule = decode_object(line) if line.strip() else ({}, "")
        blank += not line.strip()
        if value is None:
            bad.append(BadLine(row, rule))
    return bad, blank


def _hold(texts: pl.Series, wanted: tuple[str, ...], among: Flags) -> Flags:
    """Which of some texts hold one of those wanted; without any, all do."""
    if not wanted or not among.any():
        return among
    asked = texts if among.all() else texts.filter(pl.Series(among))
    held = np.zeros(len(asked), dtype=bool)
    for text in wanted:
        held |= asked.bin.contains(text.encode()).to_numpy()
        if held.all():
            break
    found = np.zeros(len(texts), dtype=bool)
    found[among] = held
    return found


def time_us(texts: pl.Series) -> pl.Series:
    """Times as unix microseconds: RFC 3339 with any fraction, or unix seconds. Null for any other text."""
    if texts.null_count() == len(texts):
        return texts.cast(pl.Int64)
    told = texts.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%#z", time_unit="us", time_zone="UTC", strict=False)
    times = told.dt.epoch("us")
    if times.null_count() == texts.null_count():
        return times
    seconds = (texts.cast(pl.Float64, strict=False) * 1_000_000).round().cast(pl.Int64, strict=False)
    return times.fill_null(seconds)
