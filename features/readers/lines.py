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
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from features.readers.conform import misfit, nested_text
from features.readers.plain import Chunk, whole_lines

PIECES, PIECE_LINES = 32, 8
"""Lines with a value of a wrong type are looked for in pieces of pieces, the smallest of so many lines."""
FEW_LINES = 64
"""So few are judged one by one: another parser is not worth its start."""
ROW = "source_row"
_NEWLINE = 10
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


@dataclass(frozen=True, slots=True)
class _Form:
    """What a line is to be."""

    schema: Schema
    repair: Repair | None
    json_texts: tuple[str, ...]

    def rows(self, lines: list[bytes], count: int) -> pl.DataFrame | None:
        """`count` rows, one a line; None if there may be a line that is none."""
        frame = _strict(lines, self.schema)
        if frame is None or frame.height != count or nested_text(frame.drop(self.json_texts)):
            return None
        return frame


def read_lines(
    path: Path, schema: Schema, *, repair: Repair | None = None, json_texts: tuple[str, ...] = ()
) -> Iterator[Parsed]:
    """Parses a JSONL file (gzip or zstd by content). Memory is bounded by a few chunks.

    `repair` may change a decoded object in place before it is judged; only lines that polars refuses come to it.
    `json_texts`: text columns that hold JSON; an object in place of such a text may come as its text.
    A file that ends early (a cut packed stream) yields what it holds and then one bad line `file_cut_short`.
    Raises SourceError if the file cannot be opened, is empty or is not text.
    """
    form = _Form(schema, repair, json_texts)
    clean = True
    for chunk in whole_lines(path):
        if chunk.cut_short:
            yield Parsed(pl.DataFrame(schema={**schema, ROW: pl.Int64}), [BadLine(chunk.first_row, "file_cut_short")])
            return
        # After a chunk with bad lines the next one is likely to have some: it is looked at before it is parsed.
        parsed = (_fast(chunk, form) if clean else None) or _cut_out(chunk, form) or _sifted(_numbered(chunk), form)
        clean = not parsed.bad
        yield parsed


def _cut_out(chunk: Chunk, form: _Form) -> Parsed | None:
    """A chunk whose bad lines are no JSON, without a Python object a line: they are cut out, the rest is parsed.

    None if other lines are bad as well, or there are few.
    """
    content = chunk.content
    if content.count(b"\n") <= FEW_LINES:
        return None
    try:
        lines = pl.Series("line", [content.decode().removesuffix("\n")]).str.split("\n").explode()
    except UnicodeDecodeError:
        return None
    odd = _odd_places(lines)
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == _NEWLINE) + 1
    starts = np.concatenate(([0], ends, [len(content)]))
    pieces = [content[starts[a + 1] if a >= 0 else 0 : starts[b]] for a, b in pairwise([-1, *odd, len(lines)])]
    frame = form.rows([b"".join(pieces)], len(lines) - len(odd))
    if frame is None:
        return None
    rows = np.delete(np.arange(len(lines), dtype=np.int64), odd) + chunk.first_row
    apart = [(chunk.first_row + at, content[starts[at] : starts[at + 1]].removesuffix(b"\n")) for at in odd]
    return _together([Parsed(frame.with_columns(pl.Series(ROW, rows))), _line_by_line(apart, form)])


def parse_each(lines: list[tuple[int, bytes]], schema: Schema) -> Parsed:
    """Parses lines, each with its row, of which some may be none of `schema`."""
    return _sifted(lines, _Form(schema, None, ()))


def _sifted(lines: list[tuple[int, bytes]], form: _Form) -> Parsed:
    """Lines with a bad one somewhere: those that are no JSON are taken out, then the rest is parsed at once."""
    if len(lines) <= FEW_LINES:
        return _line_by_line(lines, form)
    odd = odd_lines([line for _, line in lines])
    if not odd:
        return _in_pieces(lines, form)
    apart = set(odd)
    found = [_line_by_line([lines[at] for at in odd], form)]
    found.append(_in_pieces([line for at, line in enumerate(lines) if at not in apart], form))
    return _together(found)


def odd_lines(lines: list[bytes]) -> list[int]:
    """Places of lines that are blank, no UTF-8 or no JSON object, by duckdb's parser. It may take a line that others
    refuse, so what it takes is parsed strictly all the same.
    """
    texts = pl.Series("line", lines, dtype=pl.Binary)
    try:
        return _odd_places(texts.cast(pl.String))
    except pl.exceptions.PolarsError:
        decoded = pl.Series("line", [_text(line) for line in lines], dtype=pl.String)
        return sorted({*_odd_places(decoded), *decoded.is_null().arg_true().to_list()})


def _odd_places(lines: pl.Series) -> list[int]:
    """Places of texts that are no JSON object; of null, nothing is said."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    try:
        connection.register("lines", pl.DataFrame({"line": lines}).with_row_index("place"))
        sql = "SELECT place FROM lines WHERE NOT (json_valid(line) AND starts_with(ltrim(line, ' \t\r'), '{'))"
        return sorted(int(place) for (place,) in connection.execute(sql).fetchall())
    finally:
        connection.close()


def _text(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _in_pieces(lines: list[tuple[int, bytes]], form: _Form) -> Parsed:
    """All lines at once if polars takes them, else in pieces down to single lines."""
    frame = form.rows([line for _, line in lines], len(lines))
    if frame is not None:
        return Parsed(frame.with_columns(pl.Series(ROW, [row for row, _ in lines], dtype=pl.Int64)))
    if len(lines) <= PIECE_LINES:
        return _line_by_line(lines, form)
    step = max(PIECE_LINES, -(-len(lines) // PIECES))
    return _together([_in_pieces(lines[at : at + step], form) for at in range(0, len(lines), step)])


def _together(found: list[Parsed]) -> Parsed:
    """Parts of a chunk as one, in order of their rows."""
    return Parsed(
        pl.concat([parsed.frame for parsed in found]).sort(ROW),
        sorted((line for parsed in found for line in parsed.bad), key=lambda line: line.row),
        sum(parsed.blank for parsed in found),
    )


def _fast(chunk: Chunk, form: _Form) -> Parsed | None:
    lines = chunk.content.count(b"\n") + (not chunk.content.endswith(b"\n"))
    frame = form.rows([chunk.content], lines)
    if frame is None:
        return None
    return Parsed(frame.with_columns(pl.int_range(chunk.first_row, chunk.first_row + lines, dtype=pl.Int64).alias(ROW)))


def _line_by_line(lines: list[tuple[int, bytes]], form: _Form) -> Parsed:
    good: list[bytes] = []
    rows: list[int] = []
    bad: list[BadLine] = []
    blank = 0
    for row, line in lines:
        if not line.strip():
            blank += 1
            continue
        value, rule = decode_object(line)
        if value is None:
            bad.append(BadLine(row, rule))
            continue
        if form.repair is not None:
            form.repair(value)
        wrong = misfit(value, form.schema)
        if wrong:
            bad.append(BadLine(row, f"{wrong}|type"))
            continue
        good.append(json.dumps({key: value.get(key) for key in form.schema}).encode())
        rows.append(row)
    frame = _strict(good, form.schema)
    if frame is None:
        # polars refuses a line that json takes (a lone surrogate, say): find it.
        alone = [_strict([line], form.schema) for line in good]
        bad += [BadLine(row, "json") for row, parsed in zip(rows, alone, strict=True) if parsed is None]
        rows = [row for row, parsed in zip(rows, alone, strict=True) if parsed is not None]
        frame = pl.concat([pl.DataFrame(schema=dict(form.schema)), *(parsed for parsed in alone if parsed is not None)])
    return Parsed(frame.with_columns(pl.Series(ROW, rows, dtype=pl.Int64)), bad, blank)


def _strict(lines: list[bytes], schema: Schema) -> pl.DataFrame | None:
    try:
        return pl.read_ndjson(io.BytesIO(b"\n".join(lines)), schema=dict(schema))
    except pl.exceptions.PolarsError:
        return None


def _numbered(chunk: Chunk) -> list[tuple[int, bytes]]:
    return list(enumerate(split_lines(chunk.content), chunk.first_row))


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
