"""Changed groups use rows since the change; quiet ones keep their history."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.recency import CERTAIN_SIGMAS, DAY_US, Change, changes, newest_regime, recent_rows, told


def day_rows(day: int, node: str | None, level: float, *, count: int = 200, spread: float = 0.1) -> pl.DataFrame:
    """Rows of a node's day whose log ratio lies around `level`."""
    rng = np.random.default_rng([day, 0 if node is None else ord(node)])
    return pl.DataFrame(
        {
            "node": pl.Series([node] * count, dtype=pl.String),
            "at_us": day * DAY_US + np.arange(count),
            "ratio": level + rng.normal(0.0, spread, count),
        }
    )


def evidence(older: pl.DataFrame, newer: pl.DataFrame) -> pl.DataFrame:
    frames = [older.with_columns(newer=pl.lit(False)), newer.with_columns(newer=pl.lit(True))]
    return (
        pl.concat(frames)
        .select("node", pl.col("at_us") // DAY_US, "ratio", "newer")
        .rename({"at_us": "day", "ratio": "log_ratio"})
    )


def recent(older: list[pl.DataFrame], newer: list[pl.DataFrame]) -> tuple[pl.DataFrame, tuple[Change, ...]]:
    before, after = pl.concat(older), pl.concat(newer)
    found = changes(evidence(before, after), least=0.05)
    return recent_rows(before, after, found, keys=("node",), time="at_us"), found


def days_of(rows: pl.DataFrame, node: str | None) -> list[int]:
    found = rows.filter(pl.col("node").eq_missing(pl.lit(node)))["at_us"] // DAY_US
    return sorted(set(found.to_list()))


def test_a_quiet_pool_keeps_its_older_days_and_no_newer_ones() -> None:
    older = [day_rows(day, node, 0.0) for day in (1, 2, 3) for node in "ab"]
    rows, found = recent(older, [day_rows(4, node, 0.01) for node in "ab"])
    assert found == ()
    assert rows.equals(pl.concat(older))


def test_a_changed_group_uses_rows_since_the_change() -> None:
    older = [day_rows(day, node, 0.0) for day in (1, 2, 3) for node in "ab"]
    rows, found = recent(older, [day_rows(4, "a", np.log(1.25)), day_rows(4, "b", 0.0)])
    assert [(change.group, change.day) for change in found] == [(("a",), 4)]
    assert found[0].factor == pytest.approx(1.25, abs=0.03)
    assert days_of(rows, "a") == [4]
    assert days_of(rows, "b") == [1, 2, 3]


def test_a_change_within_the_older_days_is_found_too() -> None:
    older = [day_rows(1, "a", -0.2), day_rows(2, "a", -0.2), day_rows(3, "a", 0.2)]
    rows, found = recent(older, [day_rows(4, "a", 0.2), day_rows(5, "a", 0.2)])
    assert [change.day for change in found] == [3]
    assert days_of(rows, "a") == [3, 4, 5]


def test_a_group_that_only_newer_days_have_is_taken_whole() -> None:
    rows, found = recent([day_rows(1, "a", 0.0)], [day_rows(2, "a", 0.0), day_rows(2, None, 0.7)])
    assert found == (Change((None,), 2, 1.0),)
    assert days_of(rows, "a") == [1]
    assert days_of(rows, None) == [2]


def test_a_small_group_that_every_day_has_is_not_new() -> None:
    older = [day_rows(day, "a", 0.0, count=20) for day in (1, 2)]
    rows, found = recent(older, [day_rows(3, "a", 1.0, count=40)])
    assert found == ()
    assert days_of(rows, "a") == [1, 2]


def test_people_are_told_what_changed_and_since_when() -> None:
    sentences = told({"prefill_steps": [Change(("p1",), 1, 1.25)], "lengths": [Change(("a/b",), 2, 1.0)]})
    assert sentences == (
        "lengths: a/b is new: it is fitted on its rows since 1970-01-03.",
        "prefill steps: p1 changed on 1970-01-02 (× 1.25): it is fitted on its rows since 1970-01-02.",
    )


def test_groups_may_be_named_by_an_expression() -> None:
    older, newer = day_rows(1, "a", 0.0), day_rows(2, "a", 0.5)
    key = pl.col("node").str.to_uppercase().alias("group")
    rows = recent_rows(older, newer, [Change(("A",), 2, 1.6)], keys=(key,), time="at_us")
    assert rows.equals(newer)


def test_few_rows_change_nothing() -> None:
    older = [day_rows(1, "a", 0.0)]
    rows, found = recent(older, [day_rows(2, "a", 1.0, count=20), day_rows(2, "b", 1.0, count=20)])
    assert found == ()
    assert rows.equals(older[0])


def test_unknown_ratios_are_no_evidence_but_their_rows_stay_with_their_group() -> None:
    older, newer = day_rows(1, "a", 0.0), day_rows(2, "a", 0.5)
    known = pl.int_range(pl.len()) % 2 == 0
    newer = newer.with_columns(ratio=pl.when(known).then("ratio"))
    rows, found = recent([older], [newer])
    assert [change.day for change in found] == [2]
    assert rows.equals(newer)


def test_rows_that_bear_on_others_stay_without_a_value_of_their_own() -> None:
    older = pl.concat([day_rows(1, "a", 0.0), day_rows(1, "b", 0.0)]).with_columns(bytes=pl.lit(7))
    newer = pl.concat([day_rows(day, node, 0.0) for day in (2, 3) for node in "ab"]).with_columns(bytes=pl.lit(7))
    rows = recent_rows(older, newer, [Change(("a",), 3, 1.3)], keys=("node",), time="at_us", beside="bytes")
    assert (days_of(rows, "a"), days_of(rows, "b")) == ([1, 3], [1, 3])
    known = rows.filter(pl.col("bytes").is_not_null())
    assert (days_of(known, "a"), days_of(known, "b")) == ([3], [1])


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8), st.floats(0.001, 0.1))
def test_days_that_agree_are_one_regime_and_the_last_two_tell_a_change(values: list[float], error: float) -> None:
    value = np.array(values)
    at = newest_regime(value, np.full(len(values), error), least=0.05)
    assert 0 <= at < len(values)
    allowed = max(0.05, CERTAIN_SIGMAS * error * 2**0.5)
    if np.ptp(value) < allowed * 0.5:
        assert at == 0
    if len(values) > 1 and abs(value[-1] - value[-2]) > allowed * 1.001:
        assert at == len(values) - 1
