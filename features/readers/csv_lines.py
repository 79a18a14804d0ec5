"""CSV from a file, in chunks: the twin of features/readers/lines.py, with the same promises.

The first line names the columns, in any order; columns that nobody asked for are dropped. A record is one line: a field
may be quoted and may hold separators, but no line break. A chunk goes to polars with its types; where that fails, the
chunk is read as text, its fields are counted line by line and each bad line is reported with its row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import SourceError
from features.readers.lines import ROW, BadLine, Parsed
from features.readers.plain import whole_lines

_NEWLINE, _QUOTE, _COMMA, _ASCII_END = 10, 34, 44, 128
Columns = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Layout:
    """The header's names, the columns that are wanted of them, and polars' arguments for both."""

    names: tuple[str, ...]
    wanted: Columns

    @property
    def unnamed(self) -> list[str]:
        return [f"_{at}" for at in range(len(self.names))]

    def at(self, name: str) -> str:
        return f"_{self.names.index(name)}"


def read_csv_lines(path: Path, columns: Columns) -> Iterator[Parsed]:
    """Parses a CSV file with a header. `columns`: those that it must have -> String, Int64 or Float64.

    An empty field is null. Rules of bad lines: `csv_fields` (too few or too many), `csv_quote`, `utf8`, and
    `<column>|type`. A file that ends early (a cut gzip stream) yields what it holds and then one bad line
    `file_cut_short`. Memory is bounded by a few chunks; `source_row` counts the header as line 1.
    Raises SourceError if the file cannot be opened, is empty, is not text or its header lacks a column.
    """
    layout: _Layout | None = None
    clean = True
    for chunk in whole_lines(path):
        if chunk.cut_short:
            yield Parsed(pl.DataFrame(schema={**columns, ROW: pl.Int64}), [BadLine(chunk.first_row, "file_cut_short")])
            return
        first, body = chunk.first_row, chunk.content
        if layout is None:
            line, _, body = body.partition(b"\n")
            layout, first = _layout(line, columns, path), first + 1
        if body:
            parsed = _typed(body, first, layout) if clean else None
            # A file with bad lines has more of them: the next chunk is not tried in vain.
            clean = parsed is not None
            yield parsed or _judged(body, first, layout)


def csv_header(text: str) -> tuple[str, ...]:
    """Names in the first line of a text, () if it is none of CSV."""
    try:
        return _names(text.partition("\n")[0])
    except ValueError:
        return ()


def _layout(line: bytes, columns: Columns, path: Path) -> _Layout:
    try:
        names = _names(line.decode("utf-8"))
    except ValueError as error:
        raise SourceError("a CSV must start with its column names", place=str(path)) from error
    missing = [name for name in columns if names.count(name) != 1]
    if missing:
        raise SourceError(
            "a CSV's first line must name each column once",
            value=list(names)[:20],
            place=str(path),
            hint=f"needed: {', '.join(missing)}",
        )
    return _Layout(names, columns)


def _names(line: str) -> tuple[str, ...]:
    """Raises ValueError if the line is no record of CSV."""
    fields = _fields(line.removesuffix("\r"))
    if fields is None:
        raise ValueError(line)
    return tuple(name.strip() for name in fields)


def _fields(line: str) -> list[str] | None:
    """Fields of one record, None if its quotes do not fit."""
    try:
        (fields,) = csv.reader([line], strict=True)
    except (csv.Error, ValueError):
        return None
    return fields


def _typed(content: bytes, first: int, layout: _Layout) -> Parsed | None:
    """A chunk in which every line is a record of the right types, None if there may be another."""
    lines = _line_count(content)
    last = layout.unnamed[-1]
    separators = int(np.count_nonzero(np.frombuffer(content, np.uint8) == _COMMA))
    if _QUOTE in content or separators != lines * (len(layout.names) - 1) or not _is_text(content):
        return None
    types = {layout.at(name): dtype for name, dtype in layout.wanted.items()}
    try:
        frame = pl.read_csv(
            io.BytesIO(content),
            has_header=False,
            schema={name: types.get(name, pl.String()) for name in layout.unnamed},
            columns=sorted({layout.unnamed.index(name) for name in (*types, last)}),
            extra_columns="raise",
            missing_columns="insert",
        )
    except pl.exceptions.PolarsError:
        return None
    # The separators add up, so a line with too many has one with too few beside it, which has no last field.
    if frame.height != lines or frame[last].null_count() or not _finite(frame):
        return None
    named = frame.select(pl.col(layout.at(name)).alias(name) for name in layout.wanted)
    return Parsed(named.with_columns(pl.int_range(first, first + lines, dtype=pl.Int64).alias(ROW)))


def _is_text(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _finite(frame: pl.DataFrame) -> bool:
    return all(bool(column.is_finite().all()) for column in frame.iter_columns() if column.dtype == pl.Float64)


def _judged(content: bytes, first: int, layout: _Layout) -> Parsed:
    """A chunk line by line: polars reads what looks like records, only the others are taken one by one."""
    marks = np.frombuffer(content if content.endswith(b"\n") else content + b"\n", np.uint8)
    ends = np.flatnonzero(marks == _NEWLINE)
    fields = _between(np.flatnonzero(marks == _COMMA), ends) + 1
    special = _between(np.flatnonzero((marks == _QUOTE) | (marks >= _ASCII_END)), ends) > 0
    plain = ~special & (fields == len(layout.names)) & (len(layout.names) > 1)
    bad: list[BadLine] = []
    records: list[tuple[int, list[str]]] = []
    for at in np.flatnonzero(~plain).tolist():
        line = content[(ends[at - 1] + 1 if at else 0) : ends[at]]
        if not line.strip():
            continue
        record, rule = _record(line, len(layout.names))
        if record is None:
            bad.append(BadLine(first + at, rule))
        else:
            records.append((at, record))
    which = np.flatnonzero(plain)
    numbers = {layout.at(name): dtype for name, dtype in layout.wanted.items() if dtype != pl.String}
    mass = _read(content, ends, which, layout, numbers)
    # Polars puts null for what is no number: those lines are read again as text, to tell it from an empty field.
    doubtful = mass.select(pl.any_horizontal(pl.lit(value=False), *(pl.col(name).is_null() for name in numbers)))
    doubt = doubtful.to_series().to_numpy()
    texts = [_read(content, ends, which[doubt], layout, {}), _frame(records, layout)]
    judged = [_cast(text, layout) for text in texts if text.height]
    kept = [_named(mass.filter(~doubt) if doubt.any() else mass, layout), *(frame for frame, _ in judged)]
    whole = pl.concat(kept).sort(ROW) if len(kept) > 1 else kept[0]
    bad += [BadLine(first + at, rule) for _, misfits in judged for at, rule in misfits]
    return Parsed(whole.with_columns(pl.col(ROW) + first), sorted(bad, key=lambda line: line.row))


def _record(line: bytes, size: int) -> tuple[list[str] | None, str]:
    """Fields of a line, or None and the rule that it breaks."""
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        return None, "utf8"
    fields = _fields(text)
    if fields is None:
        return None, "csv_quote"
    return (fields, "") if len(fields) == size else (None, "csv_fields")


def _between(positions: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many of `positions` are on each line."""
    return np.diff(np.searchsorted(positions, ends), prepend=0)


def _lines(content: bytes, ends: npt.NDArray[np.int64], which: npt.NDArray[np.int64]) -> Iterator[bytes]:
    """Runs of the lines `which`, each with its line end."""
    if not len(which):
        return
    breaks = np.flatnonzero(np.diff(which) != 1)
    starts = np.concatenate([which[:1], which[breaks + 1]]).tolist()
    for start, stop in zip(starts, np.concatenate([which[breaks], which[-1:]]).tolist(), strict=True):
        yield content[(ends[start - 1] + 1 if start else 0) : ends[stop] + 1]


def _read(
    content: bytes,
    ends: npt.NDArray[np.int64],
    which: npt.NDArray[np.int64],
    layout: _Layout,
    numbers: Columns,
) -> pl.DataFrame:
    """Wanted columns of lines without quotes and with as many fields as the header: numbers where named, else text."""
    at = [layout.at(name) for name in layout.wanted]
    types = {name: numbers.get(name, pl.String()) for name in layout.unnamed}
    if not len(which):
        return pl.DataFrame(schema={**{name: types[name] for name in at}, ROW: pl.Int64()})
    frame = pl.read_csv(
        io.BytesIO(b"".join(_lines(content, ends, which))),
        has_header=False,
        schema=types,
        columns=sorted(layout.unnamed.index(name) for name in at),
        quote_char=None,
        ignore_errors=True,
    )
    endless = [pl.when(pl.col(name).is_finite()).then(name).alias(name) for name in at if types[name] == pl.Float64]
    return frame.with_columns(pl.Series(ROW, which, dtype=pl.Int64), *endless)


def _frame(records: list[tuple[int, list[str]]], layout: _Layout) -> pl.DataFrame:
    named = {
        layout.at(name): [fields[layout.names.index(name)] or None for _, fields in records] for name in layout.wanted
    }
    schema = {**dict.fromkeys(named, pl.String()), ROW: pl.Int64()}
    return pl.DataFrame({**named, ROW: [at for at, _ in records]}, schema=schema)


def _named(frame: pl.DataFrame, layout: _Layout) -> pl.DataFrame:
    return frame.select(*(pl.col(layout.at(name)).alias(name) for name in layout.wanted), ROW)


def _cast(texts: pl.DataFrame, layout: _Layout) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Columns with their types, and the lines with a text that is none of its column's."""
    named = _named(texts, layout).with_columns(
        # Polars' own parser skips blanks before a number.
        pl.col(name).str.strip_chars_start(" \t").replace("", None)
        for name, dtype in layout.wanted.items()
        if dtype != pl.String
    )
    typed = named.select(ROW, *(_value(name, dtype) for name, dtype in layout.wanted.items()))
    wrong = [
        pl.when(named[name].is_not_null() & typed[name].is_null()).then(pl.lit(f"{name}|type"))
        for name in layout.wanted
    ]
    rules = typed.select(pl.coalesce(wrong)).to_series()
    bad = list(zip(typed.filter(rules.is_not_null())[ROW], rules.drop_nulls(), strict=True))
    return typed.filter(rules.is_null()).select(*layout.wanted, ROW), bad


def _value(name: str, dtype: Any) -> pl.Expr:  # noqa: ANN401  a polars type or its class
    if dtype == pl.String:
        return pl.col(name)
    value = pl.col(name).cast(dtype, strict=False)
    return pl.when(value.is_finite()).then(value).alias(name) if dtype == pl.Float64 else value


def _line_count(content: bytes) -> int:
    newlines = int(np.count_nonzero(np.frombuffer(content, np.uint8) == _NEWLINE))
    return newlines + (not content.endswith(b"\n"))
