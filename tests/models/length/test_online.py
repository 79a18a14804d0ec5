"""Many rows at once are what the plain form says one by one, to the bit; the online rule follows the answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from features.length_history import DELAY_ROWS
from features.trailing import RECENT_ANSWERS, RECENT_LEAST
from models.length.fit import LengthFit, fit_length
from models.length.inputs import Names, input_matrix
from models.length.online import answers_seen, base_tokens, caps, frozen_quantiles, online_quantiles
from models.length.rows import LengthRows, read_lengths
from models.portable.length import ALL, Arrival
from models.portable.length_online import LengthTracker
from tests.models.length.samples import everything, requests, small_law


@pytest.fixture(scope="module")
def fitted() -> LengthFit:
    return fit_length(everything(np.random.default_rng(1), 4000), seed=1)


@pytest.fixture(scope="module")
def rows() -> LengthRows:
    return read_lengths(everything(np.random.default_rng(2), 1500))


def arrivals(rows: LengthRows) -> list[Arrival]:
    names = {"session_turn": "turn"}
    found = []
    for row in rows.frame.drop("arrived_at_us", "ended_at_us").iter_rows(named=True):
        value: dict[str, Any] = {names.get(key, key): value for key, value in row.items()}
        found.append(Arrival(**value | {"slo_class": value["slo_class"] or ALL}))
    return found


def test_inputs_and_tables_agree_exactly(fitted: LengthFit, rows: LengthRows) -> None:
    asked = arrivals(rows)
    plain = np.array([fitted.law.inputs(arrival) for arrival in asked])
    np.testing.assert_array_equal(input_matrix(rows, Names.of(fitted.law)), plain)
    assert base_tokens(fitted.law, rows).tolist() == [list(fitted.law.base(arrival)) for arrival in asked]
    assert caps(fitted.law, rows).tolist() == [fitted.law.cap(arrival) for arrival in asked]


def test_quantiles_of_the_file_agree_exactly(fitted: LengthFit, rows: LengthRows) -> None:
    found = frozen_quantiles(fitted.law, rows).tolist()
    assert found == [list(fitted.law.quantiles(arrival)) for arrival in arrivals(rows)]


def test_the_online_rule_is_the_tracker_s(fitted: LengthFit, rows: LengthRows) -> None:
    asked, tracker = arrivals(rows), LengthTracker(fitted.law)
    order, seen = answers_seen(rows)
    done, expected = 0, []
    for arrival, until in zip(asked, seen.tolist(), strict=True):
        for at in order[done:until].tolist():
            tracker.observe(asked[at], int(rows.output[at]))
        done = until
        expected.append(list(tracker.quantiles(arrival)))
    assert done > 1000
    assert online_quantiles(fitted.law, rows).tolist() == expected


def test_an_answer_is_seen_strictly_after_it_ended() -> None:
    table = requests(np.random.default_rng(3), 3).with_columns(
        arrived_at_us=pl.Series([0, 10, 11]), ended_at_us=pl.Series([10, None, 5], dtype=pl.Int64)
    )
    order, seen = answers_seen(read_lengths(table))
    assert order.tolist()[:2] == [2, 0]
    assert seen.tolist() == [0, 1, 2]


def test_without_ends_an_answer_is_seen_some_rows_later() -> None:
    table = requests(np.random.default_rng(3), DELAY_ROWS + 20).drop("ended_at_us")
    _, seen = answers_seen(read_lengths(table))
    assert seen.tolist() == [0] * (DELAY_ROWS + 1) + list(range(1, 20))


def test_offsets_follow_a_change_of_the_answers() -> None:
    table = requests(np.random.default_rng(4), 6000, shares=(0.0, 1.0, 0.0))
    rows = read_lengths(table)
    law = small_law(levels=(0.5, 0.9), pace=0.03)
    found = online_quantiles(law, rows)
    late = slice(2000, None)
    for at, level in enumerate(law.levels):
        assert np.mean(rows.output[late] <= found[late, at]) == pytest.approx(level, abs=0.02)


def test_recent_answers_are_kept_as_the_log_tells_them(fitted: LengthFit) -> None:
    tracker = LengthTracker(small_law())
    arrival = Arrival("chat", 100, app="new")
    assert tracker.complete(arrival).recent_output is None
    for k in range(RECENT_LEAST):
        tracker.observe(arrival, 10 + k)
    logs = np.log1p(10 + np.arange(RECENT_LEAST))
    weights = (1 - 1 / RECENT_ANSWERS) ** np.arange(RECENT_LEAST)[::-1]
    mean = float(np.expm1((weights * logs).sum() / weights.sum()))
    assert tracker.complete(arrival).recent_output == pytest.approx(mean)
    assert tracker.complete(Arrival("chat", 100)).recent_output is None
    started = LengthTracker(fitted.law)
    for key, tokens in fitted.law.recent.items():
        assert started.recent[key].mean == pytest.approx(tokens)
