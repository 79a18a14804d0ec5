"""Which rows count, in which order, and which are taken of a long log."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from features.errors import ModelError
from features.tables import length_table
from models.length.inputs import learn_names
from models.length.rows import read_lengths, spread
from tests.features.test_length_history import requests as log_rows
from tests.models.length.samples import everything, requests


def test_lengths_stop_at_their_limit() -> None:
    table = requests(np.random.default_rng(1), 4).with_columns(
        output_tokens=pl.Series([5, 50, 500, 0]), max_output_tokens=pl.Series([10, 10, None, 10], dtype=pl.Int64)
    )
    rows = read_lengths(table)
    assert rows.output.tolist() == [5.0, 10.0, 500.0, 0.0]
    assert np.exp(rows.log_output).tolist() == pytest.approx([5.0, 10.0, 500.0, 1.0])


def test_keys_are_class_and_app() -> None:
    table = requests(np.random.default_rng(1), 4).with_columns(
        slo_class=pl.Series(["x", "x", None, None]), app=pl.Series(["p", None, "p", None])
    )
    keys, classes, place = read_lengths(table).keys()
    assert [(keys[at], classes[at]) for at in place.tolist()] == [("x/p", "x"), ("x", "x"), ("*/p", "*"), ("*", "*")]


def test_any_order_of_rows_reads_the_same() -> None:
    table = everything(np.random.default_rng(2), 500).with_columns(arrived_at_us=pl.int_range(pl.len()) // 50)
    first, other = read_lengths(table), read_lengths(table.sample(fraction=1.0, shuffle=True, seed=1))
    assert first.frame.equals(other.frame)
    assert first.output.tolist() == other.output.tolist()


def test_a_table_of_the_log_is_read() -> None:
    log = log_rows(*({"output_tokens": 10 + i, "finish_reason": "stop", "session_id": "s"} for i in range(5)))
    rows = read_lengths(length_table(log))
    assert rows.output.tolist() == [10.0, 11.0, 12.0, 13.0, 14.0]
    assert rows.column("session_turn").tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@example(keys=[0] * 10 + [2], limit=10, least=1)  # a key that nobody has
@given(st.lists(st.integers(0, 3), min_size=1, max_size=400), st.integers(10, 100), st.integers(1, 20))
def test_each_key_keeps_its_part(keys: list[int], limit: int, least: int) -> None:
    codes = np.array(keys)
    found = spread(codes, limit, least)
    assert found.tolist() == sorted(set(found.tolist()))
    if len(keys) <= limit:
        assert found.size == len(keys)
    for key in set(keys):
        size, kept = int(np.sum(codes == key)), int(np.sum(codes[found] == key))
        assert kept >= min(size, least) / 2
    assert found.size <= 2 * limit + 4 * (2 * least + 1)


@pytest.mark.parametrize(
    ("column", "value"),
    [("arrived_at_us", None), ("cached_frac", 1.5), ("output_tokens", 2**62), ("prompt_tokens", -1)],
)
def test_impossible_values_are_named(column: str, value: float | None) -> None:
    table = requests(np.random.default_rng(1), 60)
    kind = table.schema.get(column, pl.Float64())
    with pytest.raises(ModelError) as caught:
        read_lengths(table.with_columns(pl.lit(value, kind).alias(column)))
    assert caught.value.place == f"lengths.{column}"


def test_an_app_named_like_a_band_of_another_one_keeps_its_parent() -> None:
    table = everything(np.random.default_rng(1), 3600).with_columns(
        slo_class=pl.lit("a"), app=pl.Series(["b"] * 1500 + ["b|1"] * 2100)
    )
    names = learn_names(read_lengths(table))
    assert names.parent["a/b|1"] == "a"
    assert names.parent["a/b|2"] == "a/b"
    assert all(names.groups.index(of) <= names.groups.index(name) for name, of in names.parent.items())
