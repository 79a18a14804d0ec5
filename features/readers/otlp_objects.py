"""Lines of OTLP/JSON -> one row a span, one line at a time: every writing is read, and what is none is named.

This says what the format is; features/readers/otlp_columns.py is the fast way over lines as exporters write them, and
ends in the same columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import Any

import numpy as np
import polars as pl

from features.readers.lines import ROW, BadLine
from features.readers.objects import Places
from features.readers.otlp_attributes import NS_PER_US, ORIGIN, ROLE, WANTED, WORKER, Attributes

ROOT = "resourceSpans"
LINE_STEP = 2**32
AT, NAME, START, END = "at", "span.name", "span.start_us", "span.end_us"
TRACE, OWN, FAULT = "span.trace", "span.own", "span.fault"
OF_SPAN = {
    AT: pl.Int64,
    ROW: pl.Int64,
    NAME: pl.String,
    **dict.fromkeys((START, END), pl.Int64),
    **dict.fromkeys((TRACE, OWN, FAULT), pl.String),
}
"""`at` orders spans as they are written: LINE_STEP times the line's place in its chunk, and a count. `span.fault`: the
rule that the span breaks if it says something of a request. Times are unix microseconds, the end is null if the span
never ended; ids are "" if there is none."""
SPANS = {
    **OF_SPAN,
    WORKER: pl.String,
    ROLE: pl.String,
    **{name: kind.dtype for name, kind in WANTED.items()},
}
"""Columns of a frame of spans: a span's own, those of its resource, and the attributes."""

DOCUMENT = 0
"""In place of a row: a document over several lines, whose spans are numbered themselves."""
HALF = "\ufdd0\ufdd1\ufdd0"
"""Stands for half of a pair of surrogates, which no column can hold; Unicode keeps these out of texts."""
_TIME_NS_MAX, _DIGITS = 2**63, 20
_MAYBE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
"""An escape in a text; whole pairs go together, half of one is the group."""
NOT_OF_KIND = (AttributeError, KeyError, TypeError, ValueError, OverflowError)
"""What a reader of values raises for one that is not of its kind."""


class MisfitError(Exception):
    """A line or span that is none of the format; the message is the rule that it breaks."""


@dataclass(slots=True)
class Judged:
    """Spans of lines that are taken one by one, and the places and rules of lines and spans that are none."""

    own: list[tuple[Any, ...]] = field(default_factory=list)
    attributes: list[Attributes] = field(default_factory=list)
    senders: list[Attributes] = field(default_factory=list)
    bad: list[tuple[int, BadLine]] = field(default_factory=list)
    _sender: list[int] = field(default_factory=list)

    def take(self, place: int, row: int, line: bytes) -> None:
        """The spans of one line."""
        rows = count(1) if row == DOCUMENT else repeat(row)
        at = count(place * LINE_STEP)
        try:
            for resource_spans in _list(decode_line(_with_marks(line)), ROOT, missing_ok=False):
                self.senders.append(_attributes(resource_spans.get("resource") or {}, "resource.attributes"))
                for scope in _list(resource_spans, "scopeSpans"):
                    for span in _list(scope, "spans"):
                        self._take_span(next(at), next(rows), span)
        except MisfitError as misfit:
            self.bad.append((next(at), BadLine(max(row, 1), str(misfit))))

    def _take_span(self, at: int, row: int, span: dict[str, Any]) -> None:
        try:
            attributes = _attributes(span, "attributes")
            own = _own(span)
        except MisfitError as misfit:
            self.bad.append((at, BadLine(row, str(misfit))))
            return
        self.own.append((at, row, *own))
        self.attributes.append(attributes)
        self._sender.append(len(self.senders) - 1)

    def frame(self) -> pl.DataFrame:
        """The spans, as SPANS."""
        own = pl.DataFrame(self.own, OF_SPAN, orient="row")
        senders = _columns(self.senders).select(ORIGIN)
        of = pl.Series(self._sender, dtype=pl.UInt32)
        return pl.concat([own, senders[of], _columns(self.attributes)], how="horizontal").select(list(SPANS))


def decode_line(line: bytes) -> dict[str, Any]:
    """The object on a line. Raises MisfitError if it is none."""
    try:
        value = _DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise MisfitError("utf8") from error
    except (ValueError, RecursionError) as error:
        raise MisfitError("json") from error
    if not isinstance(value, dict):
        raise MisfitError("json_object")
    return value


def _no_constant(text: str) -> float:
    raise ValueError(text)


def _first_of_a_key(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """As duckdb reads a key that stands twice: what a line says must not depend on which way it is read."""
    value = dict(pairs)
    return value if len(value) == len(pairs) else dict(reversed(pairs))


_DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_first_of_a_key)


def _with_marks(line: bytes) -> bytes:
    """HALF in place of each half of a pair."""
    if _MAYBE_HALF.search(line) is None:
        return line
    return _ESCAPE.sub(lambda escape: HALF.encode() if escape[1] else escape[0], line)


def _own(span: dict[str, Any]) -> tuple[Any, ...]:
    """Name, start, end, trace, own id and fault."""
    start_us = _time_us(span, "startTimeUnixNano")
    if start_us is None:
        raise MisfitError("startTimeUnixNano|nullability")
    name = span.get("name")
    if not isinstance(name, str):
        raise MisfitError("name|type")
    end_us = _time_us(span, "endTimeUnixNano")
    ids = [span.get("traceId") or "", span.get("spanId") or ""]
    wrong = [f"{of}|type" for of, given in zip(("traceId", "spanId"), ids, strict=True) if not isinstance(given, str)]
    return name, start_us, end_us, *(("", "") if wrong else ids), wrong[0] if wrong else None


def _columns(attributes: Sequence[Attributes]) -> pl.DataFrame:
    """A row each, a column for every known attribute."""
    found: dict[str, tuple[list[int], list[Any]]] = {}
    for place, given in enumerate(attributes):
        for name, value in given.items():
            places, values = found.setdefault(name, ([], []))
            places.append(place)
            values.append(value)
    columns = {
        name: (np.array(places), pl.Series(values, dtype=WANTED[name].dtype))
        for name, (places, values) in found.items()
    }
    return attribute_columns(columns, len(attributes))


def attribute_columns(found: Mapping[str, tuple[Places, pl.Series]], height: int) -> pl.DataFrame:
    """A column for every known attribute, from the places and values of those that are there; the first of a place."""
    columns = []
    for name, kind in WANTED.items():
        if name in found:
            places, values = found[name]
            at = np.full(height, len(values))
            at[places[::-1]] = np.arange(len(values))[::-1]
            columns.append(values.extend_constant(None, 1).gather(at).alias(name))
        else:
            columns.append(pl.Series(name, [None], kind.dtype).new_from_index(0, height))
    return pl.DataFrame(columns)


def _attributes(holder: Any, path: str) -> Attributes:  # noqa: ANN401  any JSON value
    """The attributes that are known here; of a name that stands twice, the first."""
    found: Attributes = {}
    name: Any = path
    try:
        for pair in holder.get("attributes") or ():
            name = pair["key"]
            kind = WANTED.get(name)
            if kind is not None and name not in found and (value := pair.get("value")):
                found[name] = kind.read(value)
    except NOT_OF_KIND as error:
        raise MisfitError(f"{name if isinstance(name, str) else path}|type") from error
    return found


def _list(holder: Mapping[str, Any], name: str, *, missing_ok: bool = True) -> list[dict[str, Any]]:
    held = holder.get(name)
    if held is None:
        if missing_ok:
            return []
        raise MisfitError(f"{name}|nullability")
    if not isinstance(held, list) or not all(isinstance(item, dict) for item in held):
        raise MisfitError(f"{name}|type")
    return held


def _time_us(span: Mapping[str, Any], name: str) -> int | None:
    """Unix nanoseconds, a number or its digits, in microseconds; null if there is none (0 is none)."""
    given = span.get(name)
    if given is None:
        return None
    if type(given) is str and given.isdecimal() and len(given) < _DIGITS:
        given = int(given)
    if type(given) is not int or not 0 <= given < _TIME_NS_MAX:
        raise MisfitError(f"{name}|type")
    return given // NS_PER_US or None
