from __future__ import annotations

import json
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.readers.conform import misfit
from features.readers.json_query import plain_lists
from features.readers.objects import decode_objects

SCHEMA: dict[str, Any] = {
    "integer": pl.Int64(),
    "whole": pl.UInt64(),
    "number": pl.Float64(),
    "flag": pl.Boolean(),
    "text": pl.String(),
    "list": pl.List(pl.UInt64()),
    "section": pl.Struct({"integer": pl.Int64(), "deep": pl.Struct({"text": pl.String()})}),
    "parts": pl.List(pl.Struct({"number": pl.Float64(), "list": pl.List(pl.Int64()), "flag": pl.Boolean()})),
}
SCALARS = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**30])
    | st.sampled_from([0.0, 1.0, -2.5, 1e300, 5e-324])
    | st.sampled_from(["", "5", "true", "null", "{}", "[1]", '{"integer": 1}', 'é\n"\\'])
    | st.text(max_size=5)
)
NAMES = st.sampled_from([*SCHEMA, "deep", "other"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)


def fitting(dtype: Any) -> st.SearchStrategy[Any]:
    """Values of a type, or null."""
    if isinstance(dtype, pl.Struct):
        fields = dict(dtype.to_schema())
        return st.none() | st.fixed_dictionaries({}, optional={name: fitting(kind) for name, kind in fields.items()})
    if isinstance(dtype, pl.List):
        return st.none() | st.lists(fitting(dtype.inner), max_size=3)
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        pl.Int64: st.integers(-(2**63), 2**63 - 1),
        pl.UInt64: st.integers(0, 2**64 - 1),
        pl.Float64: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
        pl.Boolean: st.booleans(),
        pl.String: st.text(max_size=5),
    }
    return st.none() | next(values for kind, values in kinds.items() if dtype == kind)


anywhere = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
OBJECTS = st.fixed_dictionaries({}, optional={name: fitting(dtype) | VALUES for name, dtype in SCHEMA.items()})


def expected(value: Any, dtype: Any) -> Any:
    if value is None:
        return None
    if isinstance(dtype, pl.Struct):
        return {name: expected(value.get(name), kind) for name, kind in dict(dtype.to_schema()).items()}
    if isinstance(dtype, pl.List):
        return [expected(item, dtype.inner) for item in value]
    if dtype == pl.Float64:
        return float(value)
    if dtype == pl.String and not isinstance(value, str):
        return json.dumps(value)
    return value


def told(value: Any) -> Any:
    """A struct in which nothing is known says as much as null."""
    if isinstance(value, dict):
        inner = {name: told(held) for name, held in value.items()}
        return None if all(held is None for held in inner.values()) else inner
    return [told(item) for item in value] if isinstance(value, list) else value


@anywhere
@given(st.lists(OBJECTS, min_size=1, max_size=8), st.booleans())
def test_each_object_is_taken_or_refused_as_if_it_came_alone(objects: list[dict[str, Any]], ascii_only: bool) -> None:
    texts = pa.array([json.dumps(value, ensure_ascii=ascii_only) for value in objects])
    decoded = decode_objects(texts, SCHEMA)
    assert decoded.odd.tolist() == [at for at, value in enumerate(objects) if misfit(value, SCHEMA)]
    assert decoded.frame.schema == pl.Schema(SCHEMA)
    taken = [value for value in objects if not misfit(value, SCHEMA)]
    numbers = [isinstance(value.get("text"), float) for value in taken]  # written as the parser likes
    for value, row, skip in zip(taken, decoded.frame.to_dicts(), numbers, strict=True):
        for name, dtype in SCHEMA.items():
            if not (name == "text" and skip) and not _float_text(value.get(name)):
                assert told(row[name]) == told(expected(value.get(name), dtype)), name


def _float_text(value: Any) -> bool:
    """Whether a number may stand where a text is wanted, deep inside."""
    deep = value.get("deep") if isinstance(value, dict) else None
    return isinstance(deep, dict) and isinstance(deep.get("text"), float)


@anywhere
@given(st.lists(st.sampled_from(['{"text": "a"}', "{", "", "[]", '{"a": 1} {}', "5", '{"text": "\\ud800"}', " {}"])))
def test_what_is_no_object_is_refused(texts: list[str]) -> None:
    decoded = decode_objects(pa.array(texts, pa.string()), SCHEMA)
    assert decoded.odd.tolist() == [at for at, text in enumerate(texts) if text != '{"text": "a"}']
    assert decoded.frame.height == texts.count('{"text": "a"}')


def test_bytes_that_are_no_text_are_refused() -> None:
    lines = pa.array([b'{"text": "\xff"}', b'{"text": "x"}', b"\xfe"]).view(pa.string())
    assert decode_objects(lines, SCHEMA).odd.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"inner": "{\\"integer\\": 1, \\"other\\": 2}"}', {"integer": 1, "part": None}),
        ('{"inner": {"integer": 1}}', {"integer": 1, "part": None}),
        ('{"inner": " {}"}', {"integer": None, "part": None}),
        ('{"inner": "{\\"part\\": {}}"}', {"integer": None, "part": {"flag": None}}),
        ('{"inner": null}', None),
        ("{}", None),
    ],
)
def test_an_object_inside_a_text(text: str, told: dict[str, Any] | None) -> None:
    decoded = decode_objects(pa.array([text]), {"inner": pl.String()}, {"inner": INNER})
    assert decoded.odd.tolist() == []
    assert decoded.frame["inner"].to_list() == [told]


INNER = {"integer": pl.Int64(), "part": pl.Struct({"flag": pl.Boolean()})}


@pytest.mark.parametrize(
    "inner", ["", "x", "5", "[1]", "null", '{"integer": 1.5}', '{"part": 5}', '{"part": []}', '{"part": {"flag": 1}}']
)
def test_a_text_that_holds_no_such_object(inner: str) -> None:
    texts = pa.array([json.dumps({"inner": inner}), '{"inner": "{}"}'])
    decoded = decode_objects(texts, {"inner": pl.String()}, {"inner": INNER})
    assert decoded.odd.tolist() == [0]


def test_loose_texts_take_objects_and_lists() -> None:
    texts = pa.array(['{"text": {"a": [1, 2]}}', '{"text": [1]}', '{"text": "x"}'])
    assert decode_objects(texts, SCHEMA).odd.tolist() == [0, 1]
    decoded = decode_objects(texts, SCHEMA, loose={"text"})
    assert decoded.frame["text"].to_list() == ['{"a":[1,2]}', "[1]", "x"]


def test_what_json_has_not_but_passes() -> None:
    texts = pa.array(['{"integer": 1,}', '{"other": NaN, "integer": 1}', '{"number": NaN}', '{"number": Infinity}'])
    assert decode_objects(texts, SCHEMA).odd.tolist() == [2, 3]


def test_the_first_of_a_key_counts() -> None:
    assert decode_objects(pa.array(['{"integer": 1, "integer": 2}']), SCHEMA).frame["integer"].to_list() == [1]


LONG = list(range(1_000))
"""Beside it, lists are converted while they are parsed if all of them are plain."""
LISTS = st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([2**64, -1, 10**30]), max_size=4)


@anywhere
@given(st.lists(LISTS | st.none(), min_size=1, max_size=6), st.booleans())
def test_lists_of_digits_are_judged_as_any_other(lists: list[list[int] | None], spaced: bool) -> None:
    lists = [LONG, *lists]
    texts = [json.dumps({"list": held}, separators=None if spaced else (",", ":")) for held in lists]
    decoded = decode_objects(pa.array(texts), SCHEMA)
    fits = [held is None or all(0 <= value < 2**64 for value in held) for held in lists]
    assert decoded.odd.tolist() == [at for at, fit in enumerate(fits) if not fit]
    assert decoded.frame["list"].to_list() == [held for held, fit in zip(lists, fits, strict=True) if fit]


@pytest.mark.parametrize("text", ['{"l\\u0069st": [1.5]}', '{"list" : [1.5]}', '{"list": ["1"]}', '{"list": [true]}'])
def test_a_list_of_something_else_is_refused_among_plain_ones(text: str) -> None:
    texts = pa.array([json.dumps({"list": LONG}), text, '{"section": {"list": [5]}}'])
    assert not plain_lists(texts, SCHEMA)
    assert plain_lists(texts.filter(pa.array([True, False, True])), SCHEMA)
    decoded = decode_objects(texts, SCHEMA)
    assert decoded.odd.tolist() == [1]


def test_any_value_comes_as_its_json() -> None:
    texts = ['{"v": {"a" : [1.50, "\\u00e9"]}}', '{"v": "5"}', '{"v": 5}', '{"v": null}', "{}"]
    decoded = decode_objects(pa.array(texts), {"v": pl.Binary()})
    assert not len(decoded.odd)
    assert decoded.frame["v"].to_list() == ['{"a":[1.5,"é"]}', '"5"', "5", None, None]
