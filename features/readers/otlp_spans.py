"""`otlp-spans`: spans in OTLP/JSON, as the collector's file exporter writes them (one batch a line) or one document.

One row of `request_parts` a span that says something about a request (features/readers/otlp_parts.py); the derivation
joins them by request, whatever files they are in. SGLang's stages name no request: they wait under `trace:<trace id>`
for a span of their trace that does. Other spans are skipped as `other_span`, spans without request and trace as
`no_request_id`.

Lines are decoded one by one: for JSON as nested as this, that is no slower than a typed parse in polars.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import polars as pl

from features.errors import SourceError
from features.readers.base import Batch, ReadContext, Reader
from features.readers.head import DOCUMENT_BYTES_MAX, Head
from features.readers.lines import ROW, BadLine, split_lines
from features.readers.otlp_attributes import NS_PER_US, WANTED, Attributes, Origin, origin, request_of
from features.readers.otlp_parts import Span, part_of
from features.readers.plain import whole_lines
from features.schemas import TABLES

BY_TRACE = "trace:"
_ROOT = "resourceSpans"
_ROWS_AT_ONCE = 16_384
_ROW_DTYPES = {**TABLES["request_parts"].dtypes, ROW: pl.Int64}
_KEY, _AT = ("request_id", "part", "part_at_us", "rank"), "_at"
_TIME_NS_MAX, _DIGITS = 2**63, 20
_FIRST_LINES, _DOCUMENT = 40, 0
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


class _MisfitError(Exception):
    """A line or span that is none of the format; the message is the rule that it breaks."""


@dataclass(slots=True)
class _Held:
    """Rows and what became no row, until a batch is full."""

    pool: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)

    def batch(self) -> Batch:
        """What is held, as a frame; nothing is held afterwards."""
        alike: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        for at, row in enumerate(self.rows):
            alike.setdefault(tuple(row), []).append((at, *row.values()))
        frames = [
            pl.DataFrame(
                dict(zip((_AT, *names), zip(*rows, strict=True), strict=True)),
                schema={_AT: pl.Int64, **{name: _ROW_DTYPES[name] for name in names}},
            )
            for names, rows in alike.items()
        ]
        empty = pl.DataFrame(schema={_AT: pl.Int64, **{name: _ROW_DTYPES[name] for name in (*_KEY, ROW)}})
        frame = pl.concat([empty, *frames], how="diagonal").sort(_AT).drop(_AT)
        done = Batch(frame.with_columns(pl.lit(self.pool).alias("pool")), self.bad, self.skipped)
        self.rows, self.bad, self.skipped = [], [], {}
        return done


def _sniff(head: Head) -> str:
    if sum(isinstance(value.get(_ROOT), list) for value in head.objects) * 2 > len(head.objects):
        return f"objects have {_ROOT}, OTLP's traces"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    held = _Held(context.pool)
    for row, line in _lines(path):
        if line is None:
            held.bad.append(BadLine(row, "file_cut_short"))
        elif line.strip():
            _take(row, line, held)
        if len(held.rows) >= _ROWS_AT_ONCE:
            yield held.batch()
    yield held.batch()


def _lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines, None where a packed file ends early. A document over several lines comes whole, as _DOCUMENT.

    Raises SourceError if a document is larger than DOCUMENT_BYTES_MAX.
    """
    chunks = whole_lines(path)
    first = next(chunks)
    if _opens_document(first.content):
        held = [first]
        for chunk in chunks:
            held.append(chunk)
            if sum(len(chunk.content) for chunk in held) > DOCUMENT_BYTES_MAX:
                raise SourceError("a JSON document must be at most 64 MiB", place=str(path), hint="one batch a line")
        whole = b"".join(chunk.content for chunk in held)
        if _is_object(whole):
            yield _DOCUMENT, whole
            return
        chunks = iter(held[1:])  # a cut line came first
    for chunk in chain((first,), chunks):
        if chunk.cut_short:
            yield chunk.first_row, None
            return
        yield from enumerate(split_lines(chunk.content), chunk.first_row)


def _is_object(content: bytes) -> bool:
    try:
        _decode(content)
    except _MisfitError:
        return False
    return True


def _opens_document(content: bytes) -> bool:
    """None of the first lines is an object by itself, and yet they begin one."""
    if not content.lstrip().startswith(b"{"):
        return False
    for line in split_lines(content)[:_FIRST_LINES]:
        try:
            _decode(line)
        except _MisfitError:
            continue
        return False
    return True


def _decode(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise _MisfitError("utf8") from error
    except (ValueError, RecursionError) as error:
        raise _MisfitError("json") from error
    if not isinstance(value, dict):
        raise _MisfitError("json_object")
    return value


def _no_constant(text: str) -> float:
    raise ValueError(text)


def _take(row: int, line: bytes, held: _Held) -> None:
    """The spans of one line; those of a document are numbered themselves."""
    rows = count(1) if row == _DOCUMENT else repeat(row)
    try:
        value = _decode(line)
        halves = _HALF.search(line) is not None
        for resource_spans in _list(value, _ROOT, missing_ok=False):
            sender = origin(_attributes(resource_spans.get("resource") or {}, "resource.attributes"))
            for scope in _list(resource_spans, "scopeSpans"):
                for span in _list(scope, "spans"):
                    _take_span(next(rows), span, sender, held, halves=halves)
    except _MisfitError as misfit:
        held.bad.append(BadLine(max(row, 1), str(misfit)))


def _take_span(row: int, span: dict[str, Any], sender: Origin, held: _Held, *, halves: bool) -> None:
    """`halves`: a text may hold half of a pair of surrogates, which cannot be written."""
    try:
        found = _row(span, sender)
        if halves and isinstance(found, dict):
            for name, value in found.items():
                if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
                    raise _MisfitError(f"{name}|type")
    except _MisfitError as misfit:
        held.bad.append(BadLine(row, str(misfit)))
        return
    if isinstance(found, str):
        held.skipped[found] = held.skipped.get(found, 0) + 1
    else:
        found[ROW] = row
        held.rows.append(found)


def _row(span: dict[str, Any], sender: Origin) -> dict[str, Any] | str:
    """A span's row, or the kind that it is skipped as."""
    attributes = _attributes(span, "attributes")
    start_us = _time_us(span, "startTimeUnixNano")
    if start_us is None:
        raise _MisfitError("startTimeUnixNano|nullability")
    name = span.get("name")
    if not isinstance(name, str):
        raise _MisfitError("name|type")
    try:
        part = part_of(Span(name, start_us, _time_us(span, "endTimeUnixNano"), attributes, sender))
    except OverflowError as error:
        raise _MisfitError(f"{error}|max") from error
    if part is None:
        return "other_span"
    trace, own = _id(span, "traceId"), _id(span, "spanId")
    request = request_of(attributes) or (BY_TRACE + trace if trace else None)
    if request is None:
        return "no_request_id"
    return {
        "request_id": request,
        "part": f"{part.kind}/{trace}/{own}",
        "part_at_us": start_us,
        "rank": part.rank,
        **part.columns,
    }


def _attributes(holder: Any, path: str) -> Attributes:  # noqa: ANN401  any JSON value
    """The attributes that are known here; of a name that stands twice, the first."""
    found: Attributes = {}
    name: Any = path
    try:
        for pair in holder.get("attributes") or ():
            name = pair["key"]
            read = WANTED.get(name)
            if read is not None and name not in found and (value := pair.get("value")):
                found[name] = read(value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _MisfitError(f"{name if isinstance(name, str) else path}|type") from error
    return found


def _list(holder: dict[str, Any], name: str, *, missing_ok: bool = True) -> list[dict[str, Any]]:
    held = holder.get(name)
    if held is None:
        if missing_ok:
            return []
        raise _MisfitError(f"{name}|nullability")
    if not isinstance(held, list) or not all(isinstance(item, dict) for item in held):
        raise _MisfitError(f"{name}|type")
    return held


def _time_us(span: dict[str, Any], name: str) -> int | None:
    """Unix nanoseconds, a number or its digits, in microseconds; null if there is none (0 is none)."""
    given = span.get(name)
    if given is None:
        return None
    if type(given) is str and given.isdecimal() and len(given) < _DIGITS:
        given = int(given)
    if type(given) is not int or not 0 <= given < _TIME_NS_MAX:
        raise _MisfitError(f"{name}|type")
    return given // NS_PER_US or None


def _id(span: dict[str, Any], name: str) -> str:
    given = span.get(name) or ""
    if not isinstance(given, str):
        raise _MisfitError(f"{name}|type")
    return given


READER = Reader("otlp-spans", "request_parts", "spans of routers and engines, OTLP/JSON", _sniff, _read)
