"""JSON inside JSON: a text column of which each value is an object of its own."""

from __future__ import annotations

import io

import polars as pl

from features.readers.conform import nested_text
from features.readers.lines import ROW, BadLine, Schema, parse_each

_NOTHING = "{}"
_NO_JSON = "!"


def decode_inner(frame: pl.DataFrame, column: str, schema: Schema) -> tuple[pl.DataFrame, list[BadLine]]:
    """`frame` with `column` (text) as a struct of `schema`, without the rows whose text is no such object.

    What the schema does not name is dropped while parsing. A null text gives a struct of nulls. Bad rows break
    `<column>|json`, `<column>|json_object`, or `<column>.<field>|type`. No two rows have the same line number.
    """
    texts = frame[column].fill_null(_NOTHING)
    values = _decoded(texts, schema)
    if values is not None:
        return frame.with_columns(values.to_struct(column)), []
    parsed = parse_each(
        [(row, (text if text.strip() else _NO_JSON).encode()) for row, text in zip(frame[ROW], texts, strict=True)],
        schema,
    )
    structs = parsed.frame.select(ROW, pl.struct(*schema).alias(column))
    whole = frame.drop(column).join(structs, on=ROW, how="inner", maintain_order="left").select(frame.columns)
    return whole, [BadLine(line.row, _within(column, line.rule)) for line in parsed.bad]


def _within(column: str, rule: str) -> str:
    """A rule of a text's fields or of the whole text, as one of its column."""
    return f"{column}.{rule}" if "|" in rule else f"{column}|{rule}"


def _decoded(texts: pl.Series, schema: Schema) -> pl.DataFrame | None:
    if texts.is_empty():
        return pl.DataFrame(schema=dict(schema))
    try:
        values = pl.read_ndjson(io.BytesIO(texts.str.join("\n").item().encode()), schema=dict(schema))
    except pl.exceptions.PolarsError:
        return None
    return values if values.height == len(texts) and not nested_text(values) else None
