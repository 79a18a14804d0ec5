"""JSON inside JSON: a text column of which each value is an object of its own."""

from __future__ import annotations

import io
import json
from typing import Any

import polars as pl

from features.readers.conform import misfit, nested_text
from features.readers.lines import ROW, BadLine, Schema, decode_object

_PIECE_ROWS = 128
"""A column with a damaged text is decoded in pieces: those without one are still fast."""
_NOTHING = "{}"


def decode_inner(frame: pl.DataFrame, column: str, schema: Schema) -> tuple[pl.DataFrame, list[BadLine]]:
    """`frame` with `column` (text) as a struct of `schema`, without the rows whose text is no such object.

    What the schema does not name is dropped while parsing. A null text gives a struct of nulls. Bad rows break
    `<column>|json`, `<column>|json_object`, or `<column>.<field>|type`.
    """
    filled = frame.with_columns(pl.col(column).fill_null(_NOTHING))
    values = _decoded(filled[column], schema)
    if values is not None:
        return filled.with_columns(values.to_struct(column)), []
    pieces: list[pl.DataFrame] = []
    bad: list[BadLine] = []
    for piece in filled.iter_slices(_PIECE_ROWS):
        values = _decoded(piece[column], schema)
        if values is None:
            good, wrong = _one_by_one(piece, column, schema)
            pieces.append(good)
            bad += wrong
        else:
            pieces.append(piece.with_columns(values.to_struct(column)))
    return pl.concat(pieces), bad


def _decoded(texts: pl.Series, schema: Schema) -> pl.DataFrame | None:
    if texts.is_empty():
        return pl.DataFrame(schema=dict(schema))
    try:
        values = pl.read_ndjson(io.BytesIO(texts.str.join("\n").item().encode()), schema=dict(schema))
    except pl.exceptions.PolarsError:
        return None
    return values if values.height == len(texts) and not nested_text(values) else None


def _one_by_one(piece: pl.DataFrame, column: str, schema: Schema) -> tuple[pl.DataFrame, list[BadLine]]:
    values: list[pl.DataFrame] = []
    kept: list[bool] = []
    bad: list[BadLine] = []
    for row, text in piece.select(ROW, column).iter_rows():
        fields, rule = _judged(text, schema)
        value = None if rule else _decoded(pl.Series([json.dumps(fields)]), schema)
        kept.append(value is not None)
        if value is None:  # without a rule: polars refuses what json takes, a lone surrogate for one
            bad.append(BadLine(row, f"{column}{rule or '|json'}"))
        else:
            values.append(value)
    structs = pl.concat([pl.DataFrame(schema=dict(schema)), *values]).to_struct(column)
    return piece.filter(pl.Series(kept, dtype=pl.Boolean)).with_columns(structs), bad


def _judged(text: str, schema: Schema) -> tuple[dict[str, Any], str]:
    """The fields of `schema`, and the rule that the text breaks."""
    value, rule = decode_object(text.encode())
    if value is None:
        return {}, f"|{rule}"
    wrong = misfit(value, schema)
    return {key: value.get(key) for key in schema}, f".{wrong}|type" if wrong else ""
