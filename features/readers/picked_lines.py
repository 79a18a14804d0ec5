"""Logs of which some lines matter, and in which a field may be a text or an object: the router's and the proxy's.

Lines that matter are found by their bytes and parsed together; the others are only looked at as far as telling damage
from another message needs. A field named in `loose` comes as text, an object as its JSON.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, compress, takewhile
from pathlib import Path

import polars as pl

from features.readers.conform import misfit, nested_text
from features.readers.lines import ROW, BadLine, Schema, decode_object, split_lines
from features.readers.plain import Chunk, whole_lines

_PIECE_LINES = 512
"""Lines are parsed again in pieces of this size where one of them is damaged."""


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows of a chunk's lines that matter, with their line number; damaged lines; how many lines were other ones."""

    frame: pl.DataFrame
    bad: list[BadLine] = field(default_factory=list)
    others: int = 0


@dataclass(frozen=True, slots=True)
class Pick:
    """`wanted`: texts of which a line that matters has one; without any, every line does. Lines that all have the first
    have no other fields than `common`: a log that was searched for it is read faster so.

    `whole`: what a line without them looks like if it is not damaged, as far as its bytes tell.
    """

    schema: Schema
    loose: frozenset[str]
    wanted: tuple[bytes, ...] = ()
    common: frozenset[str] = frozenset()
    whole: re.Pattern[bytes] | None = None


def read_picked(path: Path, pick: Pick) -> Iterator[Picked]:
    """The lines that matter of a JSON-lines file (gzip and zstd by content), some MB at a time.

    A file that ends early yields what it holds and then one bad line `file_cut_short`.
    Raises SourceError if the file cannot be opened, is empty or is not text.
    """
    for chunk in whole_lines(path):
        if chunk.cut_short:
            yield Picked(_parsed([], [], pick)[0], [BadLine(chunk.first_row, "file_cut_short")])
            return
        yield _picked(chunk, pick)


def _picked(chunk: Chunk, pick: Pick) -> Picked:
    return _all_of(chunk, pick) or _some_of(chunk, pick)


def _all_of(chunk: Chunk, pick: Pick) -> Picked | None:
    """The rows of a chunk of which every line matters and none is damaged."""
    lines = chunk.content.count(b"\n") + (not chunk.content.endswith(b"\n"))
    held = [*takewhile(lambda found: found < lines, accumulate(map(chunk.content.count, pick.wanted)))]
    if pick.wanted and len(held) == len(pick.wanted):
        return None
    absent = set(pick.schema) - pick.common if pick.common and not held else set()
    frame = _strict(chunk.content, lines, replace(pick, schema=_without(pick.schema, absent)))
    if frame is None:
        return None
    rows = pl.int_range(chunk.first_row, chunk.first_row + lines, dtype=pl.Int64)
    return Picked(
        frame.with_columns(pl.lit(None, pick.schema[name]).alias(name) for name in absent).with_columns(rows.alias(ROW))
    )


def _without(schema: Schema, names: set[str]) -> Schema:
    return {name: dtype for name, dtype in schema.items() if name not in names}


def _some_of(chunk: Chunk, pick: Pick) -> Picked:
    lines: list[bytes] = []
    rows: list[int] = []
    bad: list[BadLine] = []
    others = 0
    wanted = re.compile(b"|".join(map(re.escape, pick.wanted)))  # without any, it is found everywhere
    for row, line in enumerate(split_lines(chunk.content), chunk.first_row):
        if wanted.search(line):
            if line.rstrip().endswith(b"}"):
                lines.append(line)
                rows.append(row)
            elif line.strip():  # most damaged lines are cut: without them, the others are parsed at once
                bad.append(BadLine(row, decode_object(line)[1]))
        elif pick.whole is not None and pick.whole.match(line):
            others += 1
        elif line.strip():
            value, rule = decode_object(line)
            others += value is not None
            if value is None:
                bad.append(BadLine(row, rule))
    frame, broken = _parsed(lines, rows, pick)
    return Picked(frame, sorted([*bad, *broken], key=lambda line: line.row), others)


def _parsed(lines: Sequence[bytes], rows: Sequence[int], pick: Pick) -> tuple[pl.DataFrame, list[BadLine]]:
    """Rows of lines, and the lines that are none; all at once if none of them is."""
    frame = _strict(b"\n".join(lines), len(lines), pick)
    if frame is not None:
        return frame.with_columns(pl.Series(ROW, rows, dtype=pl.Int64)), []
    if len(lines) > _PIECE_LINES:
        starts = range(0, len(lines), _PIECE_LINES)
        pieces = [_parsed(lines[at : at + _PIECE_LINES], rows[at : at + _PIECE_LINES], pick) for at in starts]
        return pl.concat([piece for piece, _ in pieces]), [line for _, bad in pieces for line in bad]
    judged = [(row, *_judged(line, pick)) for row, line in zip(rows, lines, strict=True)]
    bad = [BadLine(row, rule) for row, _, rule in judged if rule]
    good = [(row, fields) for row, fields, rule in judged if not rule]
    frame = _strict(b"\n".join(fields for _, fields in good), len(good), pick)
    if frame is None:  # polars refuses what json takes, a lone surrogate for one: find it
        alone = [_strict(fields, 1, pick) is not None for _, fields in good]
        bad += [BadLine(row, "json") for (row, _), whole in zip(good, alone, strict=True) if not whole]
        good = list(compress(good, alone))
        frame = _strict(b"\n".join(fields for _, fields in good), len(good), pick)
        assert frame is not None
    return frame.with_columns(pl.Series(ROW, [row for row, _ in good], dtype=pl.Int64)), bad


def _strict(content: bytes, lines: int, pick: Pick) -> pl.DataFrame | None:
    if not lines:
        return pl.DataFrame(schema=dict(pick.schema))
    try:
        frame = pl.read_ndjson(io.BytesIO(content), schema=dict(pick.schema))
    except pl.exceptions.PolarsError:
        return None
    return frame if frame.height == lines and not _nested(frame.drop(pick.loose, strict=False)) else None


def _nested(frame: pl.DataFrame) -> bool:
    """Whether a text may be a written-out object or array."""
    held = [name for name in frame.columns if frame[name].null_count() < frame.height]
    plain = [pl.col(name).str for name in held if frame.schema[name] == pl.String]
    marks = [(text.starts_with("{") | text.starts_with("[")).any() for text in plain]
    if marks and frame.select(pl.any_horizontal(marks)).item():
        return True
    return nested_text(frame.select(name for name in held if frame.schema[name].is_nested()))


def _judged(line: bytes, pick: Pick) -> tuple[bytes, str]:
    """The line with the fields of the schema only, and the rule that it breaks."""
    value, rule = decode_object(line)
    if value is None:
        return b"", rule
    fields = {key: value.get(key) for key in pick.schema}
    for key in pick.loose:
        if isinstance(fields[key], dict | list):
            fields[key] = json.dumps(fields[key])
    wrong = misfit(fields, pick.schema)
    return json.dumps(fields).encode(), f"{wrong}|type" if wrong else ""


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
