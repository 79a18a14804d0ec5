"""JSON lines from a file, in chunks: what is whole is decoded together, what is not is judged line by line.

Bad lines are reported with their row; nothing is ever guessed, and what a line says does not depend on its neighbours.
Text that the schema does not name, such as prompts, is dropped while parsing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from features.readers.conform import misfit
from features.readers.json_query import Schema
from features.readers.objects import Places, decode_objects
from features.readers.plain import Chunk, whole_lines

ROW = "source_row"
_NEWLINE = ord("\n")
_START = ord("{")
_MAY_END = np.isin(np.arange(256), list(b"} \t\r"))
Flags = npt.NDArray[np.bool_]
Repair = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no row of the format: its 1-based number and the rule that it breaks. Its text is not kept."""

    row: int
    rule: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """Rows of one chunk with their line number in `source_row`, and bad lines. A blank line is neither."""

    frame: pl.DataFrame
    bad: list[BadLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Form:
    """What a line is to be: a JSON object with these fields.

    `repair` may change a decoded object in place before it is judged; only lines that do not fit come to it.
    `inner`: text columns of the schema that hold a JSON object -> its schema; they become structs of it. An object in
    place of its text says the same.
    `loose`: text columns that take an object or a list as its JSON.
    """

    schema: Schema
    repair: Repair | None = None
    inner: Mapping[str, Schema] = field(default_factory=dict)
    loose: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a chunk without a copy, where each starts (and where the last ends), and which may be objects."""

    chunk: Chunk
    texts: pa.Array
    starts: npt.NDArray[np.int32]
    whole: Flags

    def numbered(self, places: Places) -> list[tuple[int, bytes]]:
        """Lines at places, each with its row and without its end."""
        content, starts = self.chunk.content, self.starts
        return [
            (self.chunk.first_row + at, content[starts[at] : starts[at + 1]].removesuffix(b"\n"))
            for at in places.tolist()
        ]


def read_lines(
    path: Path, schema: Schema, *, repair: Repair | None = None, inner: Mapping[str, Schema] | None = None
) -> Iterator[Parsed]:
    """Parses a JSONL file (gzip or zstd by content). Memory is bounded by a few chunks. Parameters are those of `Form`.

    A file that ends early (a cut packed stream) yields what it holds and then one bad line `file_cut_short`.
    Raises SourceError if the file cannot be opened, is empty or is not text.
    """
    form = Form(schema, repair, inner or {})
    for chunk in whole_lines(path):
        yield Parsed(no_rows(form), [cut_short(chunk)]) if chunk.cut_short else parse(lines_of(chunk), form)


def cut_short(chunk: Chunk) -> BadLine:
    """What stands where a file cannot be read on."""
    return BadLine(chunk.first_row, "file_cut_short")


def no_rows(form: Form) -> pl.DataFrame:
    """The columns of a form's rows."""
    return _line_by_line([], form).frame


def lines_of(chunk: Chunk) -> Lines:
    """The lines of a chunk; only a newline ends one."""
    content = chunk.content
    data = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE).astype(np.int32)
    if not content.endswith(b"\n"):
        ends = np.append(ends, np.int32(len(content)))
    starts = np.concatenate(([0], ends + 1)).astype(np.int32)
    starts[-1] = len(content)
    whole = (data[starts[:-1]] == _START) & _MAY_END[data[ends - 1]]
    texts = pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(starts), pa.py_buffer(content)])
    return Lines(chunk, texts, starts, whole)


def parse(lines: Lines, form: Form, among: Flags | None = None) -> Parsed:
    """The rows of lines (of those `among` them, if it is given) and those that are none."""
    tried = lines.whole if among is None else lines.whole & among
    decoded = decode_objects(
        lines.texts if tried.all() else lines.texts.filter(pa.array(tried)), form.schema, form.inner, form.loose
    )
    places = np.flatnonzero(tried)
    rows = np.delete(places, decoded.odd) + lines.chunk.first_row
    frame = decoded.frame.with_columns(pl.Series(ROW, rows, dtype=pl.Int64))
    left = ~lines.whole if among is None else ~lines.whole & among
    odd = np.union1d(np.flatnonzero(left), places[decoded.odd])
    if not len(odd):
        return Parsed(frame)
    judged = _line_by_line(lines.numbered(odd), form)
    frame = pl.concat([frame, judged.frame]).sort(ROW) if judged.frame.height else frame
    return Parsed(frame, judged.bad)


def _line_by_line(lines: list[tuple[int, bytes]], form: Form) -> Parsed:
    good: list[str] = []
    rows: list[int] = []
    bad: list[BadLine] = []
    for row, line in lines:
        if not line.strip():
            continue
        value, rule = _judged(line, form)
        if value is None:
            bad.append(BadLine(row, rule))
            continue
        good.append(json.dumps(value))
        rows.append(row)
    decoded = decode_objects(pa.array(good, pa.string()), form.schema, form.inner)
    # What it refuses of what json takes is a lone surrogate.
    bad += [BadLine(rows[at], "json") for at in decoded.odd.tolist()]
    held = np.delete(np.array(rows, dtype=np.int64), decoded.odd)
    frame = decoded.frame.with_columns(pl.Series(ROW, held, dtype=pl.Int64))
    return Parsed(frame, sorted(bad, key=lambda line: line.row))


def _judged(line: bytes, form: Form) -> tuple[dict[str, Any] | None, str]:
    """The fields of a line that are wanted, or None and the rule that it breaks."""
    value, rule = decode_object(line)
    if value is None:
        return None, rule
    if form.repair is not None:
        form.repair(value)
    held = {name: value.get(name) for name in form.schema}
    for name, given in held.items():
        if isinstance(given, (dict, list) if name in form.loose else dict if name in form.inner else ()):
            held[name] = json.dumps(given)
    wrong = misfit(held, form.schema)
    if wrong:
        return None, f"{wrong}|type"
    for name, fields in form.inner.items():
        if held[name] is None:
            continue
        inside, rule = decode_object(str(held[name]).encode("utf-8", "surrogatepass"))
        if inside is None:
            return None, f"{name}|{rule}"
        wrong = misfit(inside, fields)
        if wrong:
            return None, f"{name}.{wrong}|type"
    return held, ""


def split_lines(content: bytes) -> list[bytes]:
    """The lines of a text; only a newline ends one."""
    return content.removesuffix(b"\n").split(b"\n")


def decode_object(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """The object on a line, or None and the rule that the line breaks."""
    try:
        value = json.loads(
            line.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_first_of_a_key
        )
    except UnicodeDecodeError:
        return None, "utf8"
    except (ValueError, RecursionError):
        return None, "json"
    return (value, "") if isinstance(value, dict) else (None, "json_object")


def _first_of_a_key(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """As duckdb reads a key that stands twice: what a line says must not depend on its neighbours."""
    return dict(reversed(pairs))


def _no_constant(text: str) -> float:
    raise ValueError(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
