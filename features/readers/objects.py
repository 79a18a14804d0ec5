"""JSON objects -> typed columns, a chunk at a time, each as strictly as if it came alone.

duckdb parses fast but converts what it likes: 1.5 to the integer 2, true to 1, "5" to 5. So numbers and booleans are
taken from it as they are written, and converted here, where only their own kind passes; and where it made nothing of a
value that may have been something else, the value's kind is asked for. An object that does not pass is named by its
place; nothing is guessed. Two things pass that strict JSON has not: a comma before a closing bracket, and NaN in a
field that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from features.readers.json_query import ROOT, Schema, field_path, plain_lists, query, sql_text, whole_column

if TYPE_CHECKING:
    import duckdb

Places = npt.NDArray[np.int64]
_NONE: Places = np.empty(0, np.int64)
_ITEMS = "[*]"
_KINDS = ("OBJECT", "ARRAY", "VARCHAR", "BOOLEAN", "BIGINT", "UBIGINT", "DOUBLE")
"""duckdb's names of what a value is, without null."""
_TEXTS = "TEXT"
_ARROW = {pl.Int64: pa.int64(), pl.UInt64: pa.uint64(), pl.Float64: pa.float64(), pl.Boolean: pa.bool_()}
_BOOLEANS = pa.array(["true", "false"])


@dataclass(frozen=True, slots=True)
class Decoded:
    """The texts that are objects of the schema, one row each in their order, and the places of those that are not."""

    frame: pl.DataFrame
    odd: Places


@dataclass(frozen=True, slots=True)
class _Doubt:
    """Places where a value of a kind was wanted at a path, and something else may have stood. `inside`: a column whose
    text holds the path.
    """

    path: str
    kind: str
    at: Places
    inside: str | None = None


@dataclass(frozen=True, slots=True)
class _Values:
    """Converted values, the places of those that are none of their type, and doubts."""

    array: pa.Array
    odd: Places
    doubts: tuple[_Doubt, ...] = ()


def decode_objects(
    texts: pa.Array, schema: Schema, inner: Mapping[str, Schema] | None = None, loose: Collection[str] = ()
) -> Decoded:
    """Decodes texts, each of them one JSON object that starts with its brace.

    `schema`: field -> polars type: String, Int64, UInt64, Float64, Boolean, lists and structs of them. Fields that it
    does not name are dropped, absent and null ones are null, a text takes a number or a boolean as it is written. Names
    beside each other differ in more than case. Binary stands for any value: it becomes the text of its compact JSON.
    `inner`: columns of text in which an object of another schema is written -> that schema; they become structs.
    `loose`: columns of text that take an object or a list as its JSON.
    """
    import duckdb

    inner = inner or {}
    whole = np.asarray(pc.starts_with(texts, "{"), dtype=bool)
    typed = plain_lists(texts, schema)
    with _connection().cursor() as cursor:
        try:
            rows = _rows(cursor, _only(texts, whole), query(schema, inner, typed=typed))
        except (duckdb.InvalidInputException, UnicodeDecodeError):  # the latter of a message that quotes bad bytes
            valid = _rows(cursor, texts, "SELECT coalesce(json_valid(text), false) AS valid FROM texts")
            whole &= np.asarray(valid["valid"], dtype=bool)
            rows = _rows(cursor, _only(texts, whole), query(schema, inner, typed=typed, guarded=True))
        columns, odd, doubts = _columns(rows, schema, inner)
        taken = {field_path(name) for name in (*inner, *loose)}
        doubts = [doubt for doubt in doubts if doubt.path != ROOT and (doubt.inside or doubt.path not in taken)]
        held = np.flatnonzero(whole)
        if doubts:
            odd = np.union1d(odd, _unsettled(cursor, texts.take(pa.array(held)), doubts))
    frame = pl.DataFrame(pl.from_arrow(pa.table(columns)))
    if len(odd):
        frame = frame.filter(~pl.Series(np.isin(np.arange(frame.height), odd)))
    return Decoded(frame, np.union1d(np.flatnonzero(~whole), held[odd]))


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One for the process: a start costs more than a chunk. Each call has a cursor of its own."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET enable_progress_bar = false")
    return connection


def _only(texts: pa.Array, wanted: npt.NDArray[np.bool_]) -> pa.Array:
    return texts if wanted.all() else texts.filter(pa.array(wanted))


def _rows(cursor: duckdb.DuckDBPyConnection, texts: pa.Array, sql: str, **columns: pa.Array) -> pa.Table:
    cursor.register("texts", pa.table({"text": texts, **columns}))
    return cursor.sql(sql).to_arrow_table()


def _columns(
    rows: pa.Table, schema: Schema, inner: Mapping[str, Schema]
) -> tuple[dict[str, pa.Array], Places, list[_Doubt]]:
    """The fields of the objects and those inside, the places of rows that do not fit, and doubts."""
    outer = {**schema, **dict.fromkeys(inner, pl.String())}
    values = _strict(rows["object"].combine_chunks(), pl.Struct(outer), ROOT)
    columns = dict(zip(outer, values.array.flatten(), strict=True))
    odd, doubts = [values.odd], list(values.doubts)
    for name, fields in inner.items():
        within = _strict(rows[name].combine_chunks(), pl.Struct(fields), ROOT)
        columns[name] = within.array
        odd += [within.odd, np.flatnonzero(~np.asarray(rows[whole_column(name)], dtype=bool))]
        doubts += [replace(doubt, inside=name) for doubt in within.doubts]
    return columns, np.unique(np.concatenate(odd)), doubts


def _strict(array: pa.Array, dtype: Any, path: str) -> _Values:  # noqa: ANN401  a polars type, class or instance
    if isinstance(dtype, pl.Struct):
        return _struct(array, dtype, path)
    if isinstance(dtype, pl.List):
        return _list(array, dtype, path)
    if dtype == pl.Binary:
        return _Values(array, _NONE)
    if dtype == pl.String:
        return _Values(array, _NONE, _doubts(path, _TEXTS, _opening(array)))
    if array.null_count == len(array) and pa.types.is_string(array.type):
        return _Values(pa.nulls(len(array), _ARROW[_class(dtype)]), _NONE)
    return _scalar(array, _class(dtype))


def _scalar(array: pa.Array, dtype: Any) -> _Values:  # noqa: ANN401  a class of polars
    """Numbers and booleans as they are written. Those that are converted are null where they do not fit."""
    if array.type == _ARROW[dtype]:
        return _Values(array, np.flatnonzero(_flags(array.is_null())))
    if dtype is pl.Boolean:
        known = pc.is_in(array, _BOOLEANS)
        return _Values(pc.equal(array, "true"), np.flatnonzero(_flags(pc.and_not(array.is_valid(), known))))
    try:
        numbers, wrong = array.cast(_ARROW[dtype]), np.zeros(len(array), dtype=bool)
    except pa.ArrowInvalid:
        texts = pl.Series(pl.from_arrow(array))
        cast = texts.cast(dtype, strict=False)
        numbers, wrong = cast.to_arrow(), (cast.is_null() & texts.is_not_null()).to_numpy()
    if dtype is pl.Float64:
        wrong = wrong | ~_flags(pc.fill_null(pc.is_finite(numbers), fill_value=True))
    return _Values(numbers, np.flatnonzero(wrong))


def _class(dtype: Any) -> Any:  # noqa: ANN401  a polars type, class or instance; its class
    return dtype if isinstance(dtype, type) else type(dtype)


def _flags(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=bool)


def _opening(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether a text starts as an object or a list does."""
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    if data is None or starts[0] == starts[-1]:
        return np.zeros(len(array), dtype=bool)
    held = starts[:-1] < starts[1:]
    first = np.frombuffer(data, np.uint8)[np.minimum(starts[:-1], starts[-1] - 1)]
    return np.asarray(held & np.isin(first, (ord("{"), ord("["))))


def _struct(array: pa.Array, dtype: pl.Struct, path: str) -> _Values:
    """What is no object comes as a struct of nulls."""
    fields = dtype.fields
    values = [
        _strict(held, field.dtype, field_path(field.name, path))
        for held, field in zip(array.flatten(), fields, strict=True)
    ]
    empty = _empty(array) & np.asarray(array.is_valid(), dtype=bool)
    present = None if array.null_count == 0 else array.is_null()
    whole = pa.StructArray.from_arrays(
        [held.array for held in values], names=[field.name for field in fields], mask=present
    )
    odd = np.unique(np.concatenate([held.odd for held in values]))
    return _Values(whole, odd, (*_doubts(path, "OBJECT", empty), *(d for held in values for d in held.doubts)))


def _list(array: pa.Array, dtype: pl.List, path: str) -> _Values:
    """What is no array comes as null."""
    values = _strict(array.values, dtype.inner, path + _ITEMS)
    offsets = np.asarray(array.offsets)

    def rows(at: Places) -> Places:
        return np.unique(np.searchsorted(offsets, at, side="right") - 1)

    missing = array.is_null()
    whole = pa.ListArray.from_arrays(array.offsets, values.array, mask=missing if array.null_count else None)
    doubts = _doubts(path, "ARRAY", np.asarray(missing, dtype=bool))
    return _Values(whole, rows(values.odd), (*doubts, *(replace(d, at=rows(d.at)) for d in values.doubts)))


def _empty(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether nothing came: null, or a struct in which nothing came."""
    none = np.asarray(array.is_null(), dtype=bool)
    if not pa.types.is_struct(array.type):
        return none
    within = np.ones(len(array), dtype=bool)
    for held in array.flatten():
        within &= _empty(held)
        if not within.any():
            break
    return none | within


def _doubts(path: str, kind: str, places: npt.NDArray[np.bool_]) -> tuple[_Doubt, ...]:
    return (_Doubt(path, kind, np.flatnonzero(places)),) if places.any() else ()


def _unsettled(cursor: duckdb.DuckDBPyConnection, texts: pa.Array, doubts: Sequence[_Doubt]) -> Places:
    """Rows of doubts in which a value of another kind does stand."""
    odd = _NONE
    for inside in {doubt.inside for doubt in doubts}:
        asked = {(doubt.path, doubt.kind): doubt for doubt in doubts if doubt.inside == inside}
        places = np.unique(np.concatenate([doubt.at for doubt in asked.values()]))
        text = "text" if inside is None else f"json_extract_string(text, {sql_text(field_path(inside))})"
        sql = f"SELECT place FROM (SELECT place, {text} AS text FROM texts) WHERE {' OR '.join(map(_other, asked))}"  # noqa: S608
        found = _rows(cursor, texts.take(pa.array(places)), sql, place=pa.array(places))
        odd = np.union1d(odd, np.asarray(found["place"]))
    return odd.astype(np.int64)


def _other(asked: tuple[str, str]) -> str:
    """Whether a value of another kind than the one that is asked for stands at a path."""
    path, kind = asked
    found = f"json_type(text, {sql_text(path)})"
    kinds = "['OBJECT', 'ARRAY']" if kind == _TEXTS else f"{[other for other in _KINDS if other != kind]}"
    return f"list_has_any({found if _ITEMS in path else f'[{found}]'}, {kinds})"
