"""Lines of OTLP/JSON -> one row a span, its known attributes as columns: a chunk of lines at a time.

An attribute that is not written as exporters write it is read by itself. A line in which anything else is unusual is
left to features/readers/otlp_objects.py, which reads every writing and names what is none: this module decides what is
fast, that one what is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow.compute as pc

from features.readers.lines import ROW, Lines
from features.readers.objects import Places, decode_objects
from features.readers.otlp_attributes import NS_PER_US, ORIGIN, WANTED, Kind
from features.readers.otlp_objects import (
    AT,
    END,
    FAULT,
    LINE_STEP,
    NAME,
    NOT_OF_KIND,
    OWN,
    ROOT,
    SPANS,
    START,
    TRACE,
    MisfitError,
    attribute_columns,
    decode_line,
)

_PAIRS = pl.List(pl.Struct({"key": pl.String, "value": pl.Binary}))
_SPAN = dict.fromkeys(("traceId", "spanId", "name", "startTimeUnixNano", "endTimeUnixNano"), pl.Binary)
_SCOPE = pl.Struct({"spans": pl.List(pl.Struct({**_SPAN, "attributes": _PAIRS}))})
_RESOURCE = pl.Struct({"resource": pl.Struct({"attributes": _PAIRS}), "scopeSpans": pl.List(_SCOPE)})
_SCHEMA = {ROOT: pl.List(_RESOURCE)}
_LAX = r"(?i),[ \t\r]*[}\]]|[:,\[][ \t\r]*-?(?:nan|inf|infinity)[ \t\r]*[,}\]]"
"""What duckdb takes for JSON beyond JSON: a comma before a bracket, NaN and infinity."""
_QUOTED, _DIGITS = r'^"([^"\\]*)"$', r'^"?([0-9]{1,19})"?$'
_LINE, _OWNER, _SENDER, _NAMES = "line", "owner", "sender", pl.Enum(list(WANTED))


def _time_us(name: str) -> pl.Expr:
    """0 is none."""
    us = pl.col(name).str.extract(_DIGITS).cast(pl.Int64, strict=False) // NS_PER_US
    return pl.when(us != 0).then(us)


def _id(name: str) -> pl.Expr:
    return pl.when(pl.col(name).is_null()).then(pl.lit("")).otherwise(pl.col(name).str.extract(_QUOTED))


_OWN_FIELDS = (
    pl.col("name").str.extract(_QUOTED).alias(NAME),
    _time_us("startTimeUnixNano").alias(START),
    _time_us("endTimeUnixNano").alias(END),
    _id("traceId").alias(TRACE),
    _id("spanId").alias(OWN),
    pl.lit(None, pl.String).alias(FAULT),
)
_UNUSUAL = pl.any_horizontal(pl.col(NAME, START, TRACE, OWN).is_null()) | (
    pl.col("endTimeUnixNano").is_not_null() & pl.col(END).is_null()
)


@dataclass(slots=True)
class _Left:
    """Places of lines that are not read here."""

    places: list[Places] = field(default_factory=list)

    def leave(self, lines: pl.Series) -> None:
        if len(lines):
            self.places.append(lines.to_numpy())

    def all(self) -> Places:
        return np.unique(np.concatenate(self.places)).astype(np.int64)


def decode(lines: Lines) -> tuple[pl.DataFrame, Places]:
    """The spans of lines as SPANS, and the places of the lines that are not among them."""
    tried = lines.whole & ~np.asarray(pc.match_substring_regex(lines.texts, _LAX), dtype=bool)
    decoded = decode_objects(lines.texts if tried.all() else lines.texts.filter(tried), _SCHEMA)
    tried_at = np.flatnonzero(tried)
    left = _Left([np.flatnonzero(~tried), tried_at[decoded.odd]])
    exports = decoded.frame.with_columns(pl.Series(_LINE, np.delete(tried_at, decoded.odd), dtype=pl.Int64))
    left.leave(exports.filter(pl.col(ROOT).is_null())[_LINE])

    resources = _items(exports, ROOT, left).with_row_index(_OWNER)
    senders = _attributes(resources, pl.col("resource").struct.field("attributes"), left).select(ORIGIN)
    scopes = _items(resources.select(_LINE, pl.col(_OWNER).alias(_SENDER), "scopeSpans"), "scopeSpans", left)
    spans = _items(scopes, "spans", left).with_row_index(_OWNER)
    own = spans.select(_LINE, _SENDER, "endTimeUnixNano", *_OWN_FIELDS)
    left.leave(own.filter(_UNUSUAL)[_LINE])
    attributes = _attributes(spans, pl.col("attributes"), left)

    frame = pl.concat([own, senders[own[_SENDER]], attributes], how="horizontal").with_columns(
        (pl.col(_LINE) * LINE_STEP + pl.int_range(pl.len())).alias(AT),
        (pl.col(_LINE) + lines.chunk.first_row).alias(ROW),
    )
    places = left.all()
    if len(places):
        frame = frame.filter(~pl.Series(np.isin(frame[_LINE], places)))
    return frame.select(list(SPANS)), places


def _items(holders: pl.DataFrame, column: str, left: _Left) -> pl.DataFrame:
    """One row an item of a list of objects; what is beside the list is repeated."""
    items = holders.explode(column, empty_as_null=False, keep_nulls=False)
    left.leave(items.filter(pl.col(column).is_null())[_LINE])
    return items.unnest(column)


def _attributes(holders: pl.DataFrame, pairs: pl.Expr, left: _Left) -> pl.DataFrame:
    """The attributes of each holder, a column each; of a name that stands twice, the first."""
    listed = holders.select(_LINE, _OWNER, pairs.alias("pairs")).explode("pairs", empty_as_null=False, keep_nulls=False)
    written = listed.unnest("pairs")
    left.leave(written.filter(pl.col("key").is_null())[_LINE])
    wanted = written.with_columns(pl.col("key").cast(_NAMES, strict=False)).filter(
        pl.col("key").is_not_null(), pl.col("value").is_not_null(), pl.col("value") != "{}"
    )
    found = {}
    for (name,), of in wanted.partition_by("key", as_dict=True).items():
        values = _values(of["value"], WANTED[str(name)])
        left.leave(of[_LINE].filter(values.is_null()))
        found[str(name)] = of[_OWNER].to_numpy(), values
    return attribute_columns(found, holders.height)


def _values(written: pl.Series, kind: Kind) -> pl.Series:
    """Null where a value is none of its kind."""
    texts = written.str.extract(kind.plain)
    if kind.dtype == pl.String:
        values = texts
    elif kind.dtype == pl.Boolean:
        values = texts == "true"
    else:
        values = texts.cast(kind.dtype, strict=False)
    sound = values.is_not_null() if kind.dtype != pl.Float64 else values.is_finite().fill_null(value=False)
    if sound.all():
        return values
    odd = (~sound).arg_true()
    return values.scatter(odd, pl.Series([_value(text, kind) for text in written.gather(odd)], dtype=kind.dtype))


def _value(written: str, kind: Kind) -> Any:  # noqa: ANN401  any attribute's value
    """A value that is not written as usual; None if it is none of its kind."""
    try:
        return kind.read(decode_line(written.encode()))
    except (MisfitError, *NOT_OF_KIND):
        return None
