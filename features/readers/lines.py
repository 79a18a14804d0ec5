"""JSON lines from a file, in chunks: fast where a chunk is clean, line by line where it is not.

A chunk of whole lines goes to polars with a strict schema. If polars refuses it (or skipped a blank line, which would
shift row numbers, or took an object for a text), each line is judged alone and the bad ones are reported with their
row; nothing is ever guessed.
Text that the schema does not name, such as prompts, is dropped while parsing.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.conform import misfit, nested_text
from features.readers.plain import Chunk, whole_lines

ROW = "source_row"
Schema = Mapping[str, Any]
Repair = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no row of the format: its 1-based number and the rule that it breaks. Its text is not kept."""

    row: int
    rule: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """Rows of one chunk with their line number in `source_row`, bad lines, and how many lines were blank."""

    frame: pl.DataFrame
    bad: list[BadLine] = field(default_factory=list)
    blank: int = 0


def read_lines(path: Path, schema: Schema, *, repair: Repair | None = None) -> Iterator[Parsed]:
    """Parses a JSONL file (gzip by content). Memory is bounded by a few chunks.

    `repair` may change a decoded object in place before it is judged; only chunks that polars refuses come to it.
    A file that ends early (a cut gzip stream) yields what it holds and then one bad line `file_cut_short`.
    Raises SourceError if the file cannot be opened, is empty or is not text.
    """
    for chunk in whole_lines(path):
        if chunk.cut_short:
            yield Parsed(pl.DataFrame(schema={**schema, ROW: pl.Int64}), [BadLine(chunk.first_row, "file_cut_short")])
            return
        yield _fast(chunk, schema) or _line_by_line(chunk, schema, repair)


def _fast(chunk: Chunk, schema: Schema) -> Parsed | None:
    lines = chunk.content.count(b"\n") + (not chunk.content.endswith(b"\n"))
    frame = _strict([chunk.content], schema)
    if frame is None or frame.height != lines or nested_text(frame):
        return None
    return Parsed(frame.with_columns(pl.int_range(chunk.first_row, chunk.first_row + lines, dtype=pl.Int64).alias(ROW)))


def _line_by_line(chunk: Chunk, schema: Schema, repair: Repair | None) -> Parsed:
    good: list[bytes] = []
    rows: list[int] = []
    bad: list[BadLine] = []
    blank = 0
    for row, line in enumerate(split_lines(chunk.content), chunk.first_row):
        if not line.strip():
            blank += 1
            continue
        value, rule = decode_object(line)
        if value is None:
            bad.append(BadLine(row, rule))
            continue
        if repair is not None:
            repair(value)
        wrong = misfit(value, schema)
        if wrong:
            bad.append(BadLine(row, f"{wrong}|type"))
            continue
        good.append(json.dumps({key: value.get(key) for key in schema}).encode())
        rows.append(row)
    frame = _strict(good, schema)
    if frame is None:
        # polars refuses a line that json takes (a lone surrogate, say): find it.
        alone = [_strict([line], schema) for line in good]
        bad += [BadLine(row, "json") for row, parsed in zip(rows, alone, strict=True) if parsed is None]
        rows = [row for row, parsed in zip(rows, alone, strict=True) if parsed is not None]
        frame = pl.concat([pl.DataFrame(schema=dict(schema)), *(parsed for parsed in alone if parsed is not None)])
    return Parsed(frame.with_columns(pl.Series(ROW, rows, dtype=pl.Int64)), bad, blank)


def _strict(lines: list[bytes], schema: Schema) -> pl.DataFrame | None:
    try:
        return pl.read_ndjson(io.BytesIO(b"\n".join(lines)), schema=dict(schema))
    except pl.exceptions.PolarsError:
        return None


def split_lines(content: bytes) -> list[bytes]:
    """Lines as polars counts them: only a newline ends one."""
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
    """As polars reads a key that stands twice: what a line says must not depend on its neighbours."""
    return dict(reversed(pairs))


def _no_constant(text: str) -> float:
    raise ValueError(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
