"""What duckdb is asked for when JSON objects are decoded: a schema -> SQL over a table `texts` with a column `text`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl
import pyarrow as pa

Schema = Mapping[str, Any]
ROOT = "$"
_FIRST, _LONG_BYTES = 64, 80


def query(schema: Schema, inner: Mapping[str, Schema], *, typed: bool, guarded: bool = False) -> str:
    """`object`, and of each inner text its own object and whether it is one. `guarded`: inner texts may be no JSON."""
    columns = ["object"]
    for name, fields in inner.items():
        text = f"object.{sql_name(name)}"
        valid = f"json_valid({text})" if guarded else "true"
        layout = sql_text(_layout(fields, typed=False))
        columns.append(f"CASE WHEN {valid} THEN from_json({text}, {layout}) END AS {sql_name(name)}")
        brace = f"starts_with(ltrim({text}, ' \t\r\n'), '{{')"
        columns.append(f"coalesce({valid} AND {brace}, true) AS {sql_name(whole_column(name))}")
    layout = sql_text(_layout({**schema, **dict.fromkeys(inner, pl.String)}, typed=typed))
    return f"SELECT {', '.join(columns)} FROM (SELECT from_json(text, {layout}) AS object FROM texts)"  # noqa: S608


def plain_lists(texts: pa.Array, schema: Schema) -> bool:
    """Whether lists of integers that the schema asks for are long, and hold digits and nothing else wherever their
    names stand. Then they may be converted while they are parsed, which costs half as much.
    """
    names = "|".join(sorted(set(map(re.escape, _integer_lists(schema)))))
    if not names or not len(texts):
        return False
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    lines = pl.Series(pl.from_arrow(texts))
    plain = rf'"(?:{names})"\s*:\s*(?:null|\[[-0-9,\s]*\])'
    listed = lines.head(_FIRST).str.extract(f"({plain})").str.len_bytes().mean()
    if not isinstance(listed, float) or listed < _LONG_BYTES:
        return False
    if lines.str.contains("\\u", literal=True).any():  # a name may be spelled with escapes
        return False
    return bool(lines.str.count_matches(plain).sum() == lines.str.count_matches(f'"(?:{names})"').sum())


def _integer_lists(schema: Schema) -> Iterator[str]:
    """Names of fields, at any depth, that are lists of integers."""
    for name, dtype in schema.items():
        inner = dtype
        while isinstance(inner, pl.List):
            inner = inner.inner
        if isinstance(inner, pl.Struct):
            yield from _integer_lists(inner.to_schema())
        elif isinstance(dtype, pl.List) and inner.is_integer():
            yield name


def _layout(schema: Schema, *, typed: bool) -> dict[str, Any]:
    """duckdb's form of a schema, in which numbers and booleans come as they are written; of `typed`, not in lists."""
    return {name: _kept(dtype, typed=typed) for name, dtype in schema.items()}


def _kept(dtype: Any, *, typed: bool) -> Any:  # noqa: ANN401  a polars type, class or instance; JSON
    if isinstance(dtype, pl.Struct):
        return _layout(dtype.to_schema(), typed=typed)
    if isinstance(dtype, pl.List):
        plain = typed and dtype.inner.is_integer()
        return ["UBIGINT" if dtype.inner == pl.UInt64 else "BIGINT"] if plain else [_kept(dtype.inner, typed=typed)]
    return "VARCHAR" if dtype == pl.String else "JSON"


def sql_name(name: str) -> str:
    """A name as SQL and its JSON paths have it."""
    return f'"{name}"'


def field_path(name: str, of: str = ROOT) -> str:
    """The JSON path of a field of an object."""
    return f"{of}.{sql_name(name)}"


def whole_column(name: str) -> str:
    """The column that says whether an inner text is an object."""
    return f"{name} is whole"


def sql_text(value: Any) -> str:  # noqa: ANN401  a text, or JSON
    """A text as SQL writes it; anything else as the text of its JSON."""
    written = value if isinstance(value, str) else json.dumps(value)
    return "'" + written.replace("'", "''") + "'"
