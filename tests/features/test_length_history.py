"""What a router knows at arrival: from the past only."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.length_history import DELAY_ROWS, LENGTH_HISTORY, with_length_history
from features.schemas import with_all_columns
from features.trailing import RECENT_ANSWERS, RECENT_LEAST

START_US = 1_767_571_200_000_000
HOUR_US = 3_600_000_000


def requests(*rows: dict[str, Any]) -> pl.DataFrame:
    """Rows with times in microseconds from START_US."""
    full = [{"request_id": f"r{i:04}", "arrived_at_us": i, "prompt_tokens": 512, **row} for i, row in enumerate(rows)]
    schema = {"block_hashes": pl.List(pl.UInt64), "block_tokens": pl.Int64, "finished_at_us": pl.Int64}
    frame = with_all_columns("requests", pl.DataFrame(full, infer_schema_length=None, schema_overrides=schema))
    return frame.with_columns(pl.col("arrived_at_us", "finished_at_us") + START_US)


def values(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return with_length_history(frame).select(*columns).rows()


def test_a_session_is_known_by_answers_that_ended_strictly_before() -> None:
    rows = [
        {"arrived_at_us": 0, "finished_at_us": 10, "output_tokens": 100},
        {"arrived_at_us": 10, "finished_at_us": 50, "output_tokens": 40},
        {"arrived_at_us": 20, "finished_at_us": 30, "output_tokens": 200},
        {"arrived_at_us": 60, "finished_at_us": 70, "output_tokens": 1},
    ]
    found = values(
        requests(*({"session_id": "s", **row} for row in rows)),
        "session_turn", "previous_output", "session_mean_output",
    )  # fmt: skip
    assert found == [(0, None, None), (1, None, None), (2, 100.0, 100.0), (3, 40.0, pytest.approx(340 / 3))]


def test_a_cancelled_answer_is_no_length() -> None:
    rows = [
        {"arrived_at_us": 0, "output_tokens": 100},
        {"arrived_at_us": 5, "output_tokens": 3, "finish_reason": "cancelled"},
        {"arrived_at_us": 9, "output_tokens": 7},
    ]
    found = values(requests(*({"session_id": "s", **row} for row in rows)), "session_turn", "previous_output")
    assert found == [(0, None), (1, 100.0), (2, 100.0)]


def test_sessions_come_from_hashes_where_no_id_is_logged() -> None:
    chains = [[1, 2], [5], [1, 2, 3], [1, 2, 3, 4]]
    rows = [{"block_hashes": c, "block_tokens": 256, "output_tokens": 10 * (i + 1)} for i, c in enumerate(chains)]
    found = values(requests(*rows), "session_turn", "previous_output", "session_mean_output", "cached_frac")
    assert found == [(0, None, None, 0.0), (0, None, None, 0.0), (1, 10.0, 10.0, 2 / 3), (2, 30.0, 20.0, 0.75)]


def test_the_cached_share_is_the_logged_hit_where_no_hashes_are() -> None:
    frame = requests({"prefill_cached_tokens": 128}, {"prefill_cached_tokens": None})
    assert values(frame, "cached_frac") == [(0.25,), (None,)]


def test_the_hour_is_of_the_day() -> None:
    frame = requests({"arrived_at_us": 0}, {"arrived_at_us": 25 * HOUR_US + HOUR_US // 2})
    assert values(frame, "hour") == [(0.0,), (1.5,)]


def test_recent_answers_fade_and_are_those_of_class_and_app() -> None:
    outputs = [10 * (i + 1) for i in range(30)]
    rows = [
        {"output_tokens": y, "slo_class": "chat", "app": "a", "finished_at_us": 2 * i + 1, "arrived_at_us": 2 * i}
        for i, y in enumerate(outputs)
    ]
    other = {"output_tokens": 5, "slo_class": "chat", "app": "b", "arrived_at_us": 40, "finished_at_us": 41}
    found = values(requests(*rows, other), "app", "recent_output")
    assert [recent for app, recent in found if app == "b"] == [None]
    own = [recent for app, recent in found if app == "a"]
    assert own[:RECENT_LEAST] == [None] * RECENT_LEAST
    for k in range(RECENT_LEAST, 30):
        weights = [(1 - 1 / RECENT_ANSWERS) ** (k - 1 - j) for j in range(k)]
        mean = sum(w * math.log1p(y) for w, y in zip(weights, outputs, strict=False)) / sum(weights)
        assert own[k] == pytest.approx(math.expm1(mean), rel=1e-9)


def test_without_finish_times_an_answer_ends_some_rows_later() -> None:
    frame = with_length_history(requests(*({"output_tokens": 1} for _ in range(DELAY_ROWS + 30))))
    ended = frame["ended_at_us"].to_list()
    assert ended[0] == frame["arrived_at_us"][DELAY_ROWS]
    assert ended[30:] == [None] * DELAY_ROWS
    assert frame["recent_output"].is_not_null().arg_max() == DELAY_ROWS + RECENT_LEAST


def test_no_rows_are_fine() -> None:
    assert set(LENGTH_HISTORY) <= set(with_length_history(requests({}).clear()).columns)


times = st.integers(0, 300)
a_request = st.fixed_dictionaries(
    {
        "arrived_at_us": times,
        "finished_at_us": st.none() | st.integers(0, 100),
        "output_tokens": st.none() | st.integers(0, 1000),
        "finish_reason": st.sampled_from([None, "stop", "length", "cancelled", "failed"]),
        "slo_class": st.sampled_from([None, "x", "y"]),
        "app": st.sampled_from([None, "p"]),
        "session_id": st.sampled_from([None, None, "s", "t"]),
        "prefill_cached_tokens": st.none() | st.integers(0, 512),
        "chain": st.none() | st.lists(st.integers(1, 2), max_size=3),
    }
)


def drawn(rows: list[dict[str, Any]], since: int = 0) -> list[dict[str, Any]]:
    """Requests with chained hashes and finish times after their arrival; ids from `since` on."""
    made = []
    for i, row in enumerate(rows):
        row = dict(row)
        chain, finish = row.pop("chain"), row.pop("finished_at_us")
        prefixes = [hash((13, *chain[: k + 1])) % 2**62 for k in range(len(chain))] if chain else chain
        made.append(
            row
            | {"request_id": f"q{since + i:04}", "prompt_tokens": 1000, "block_hashes": prefixes}
            | {"block_tokens": None if chain is None else 256}
            | {"finished_at_us": None if finish is None else row["arrived_at_us"] + finish}
        )
    return made


@given(st.lists(a_request, min_size=1, max_size=90), st.lists(a_request, max_size=70))
@settings(max_examples=25, deadline=None)
def test_later_events_never_change_an_earlier_row(first: list[dict[str, Any]], later: list[dict[str, Any]]) -> None:
    now = max(row["arrived_at_us"] for row in first)
    after = [row | {"arrived_at_us": row["arrived_at_us"] + now + 1} for row in later]
    known = [name for name in LENGTH_HISTORY if name != "ended_at_us"]
    alone = with_length_history(requests(*drawn(first)))
    both = with_length_history(requests(*drawn(first), *drawn(after, len(first))))
    assert both.head(alone.height).select("request_id", *known).equals(alone.select("request_id", *known))


@given(st.lists(a_request, min_size=1, max_size=60), st.data())
@settings(max_examples=25, deadline=None)
def test_an_answer_says_nothing_before_it_ended(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    made = drawn(rows)
    changed = data.draw(st.integers(0, len(made) - 1))
    known = [name for name in LENGTH_HISTORY if name != "ended_at_us"]
    before = with_length_history(requests(*made))
    made[changed] = made[changed] | {"output_tokens": 7777}
    after = with_length_history(requests(*made))
    arrived, finish = made[changed]["arrived_at_us"], made[changed]["finished_at_us"]
    untouched = pl.col("arrived_at_us") <= START_US + (arrived if finish is None else finish)
    assert before.filter(untouched).select(known).equals(after.filter(untouched).select(known))
