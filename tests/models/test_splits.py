"""Splits by time: nothing of the future trains, first nights promise less."""

from __future__ import annotations

from datetime import date, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import ModelError
from models.splits import Split, SplitMode, Window, rows_of, split_days

DAY_US = 86_400_000_000
MINUTE_US = 60_000_000
D = date(2026, 3, 20)


def traffic(days: int, *, minutes: int = 10) -> dict[date, tuple[int, int]]:
    """One window a day at 09:00, the last one on D."""
    start = {D - timedelta(days=back): (20_000 - back) * DAY_US + 9 * 60 * MINUTE_US for back in range(days)}
    return {day: (first, first + minutes * MINUTE_US) for day, first in start.items()}


def days_of(windows: tuple[Window, ...]) -> list[int]:
    return [(D - window.day).days for window in windows]


@pytest.mark.parametrize(
    ("days", "train", "validation"),
    [
        (14, [13, 12, 11, 10, 9, 8, 7, 6, 5, 4], [3, 2, 1]),
        (8, [7, 6, 5, 4], [3, 2, 1]),
        (7, [6, 5, 4], [3, 2, 1]),
        (6, [5, 4, 3, 2], [1]),
        (4, [3, 2], [1]),
        (30, [13, 12, 11, 10, 9, 8, 7, 6, 5, 4], [3, 2, 1]),
    ],
)
def test_whole_days_are_held_out(days: int, train: list[int], validation: list[int]) -> None:
    split = split_days(traffic(days), day=D, embargo_us=MINUTE_US)
    assert split.mode is SplitMode.DAYS
    assert split.promotion_cap == "current"
    assert (days_of(split.train), days_of(split.validation), days_of(split.test)) == (train, validation, [0])


@pytest.mark.parametrize("days", [2, 3])
def test_two_or_three_days_are_cut_inside(days: int) -> None:
    split = split_days(traffic(days), day=D, embargo_us=MINUTE_US)
    assert split.mode is SplitMode.INSIDE_DAYS
    assert split.promotion_cap == "shadow"
    for train, validation, test in zip(split.train, split.validation, split.test, strict=True):
        assert train.end_us + MINUTE_US <= validation.start_us
        assert validation.end_us + MINUTE_US <= test.start_us


def test_one_day_trains_only() -> None:
    split = split_days(traffic(1), day=D, embargo_us=MINUTE_US)
    assert split.mode is SplitMode.TRAIN_ONLY
    assert split.promotion_cap == "none"
    assert split.validation == split.test == ()


def test_the_embargo_cuts_train_before_validation() -> None:
    round_the_clock = traffic(8, minutes=1439)
    split = split_days(round_the_clock, day=D, embargo_us=30 * MINUTE_US)
    assert split.train[-1].end_us == split.validation[0].start_us - 30 * MINUTE_US


def test_a_break_shortens_history() -> None:
    split = split_days(traffic(14), day=D, embargo_us=0, not_before=D - timedelta(days=4))
    assert (days_of(split.train), days_of(split.validation)) == ([4, 3, 2], [1])


def test_days_without_traffic_are_not_counted() -> None:
    gappy = {day: span for day, span in traffic(14).items() if (D - day).days in (0, 2, 5, 9, 11)}
    split = split_days(gappy, day=D, embargo_us=0)
    assert (days_of(split.train), days_of(split.validation)) == ([11, 9, 5], [2])


@given(
    days=st.sets(st.integers(1, 20), min_size=1, max_size=14).map(lambda back: sorted({0, *back})),
    minutes=st.integers(10, 1400),
    embargo_min=st.integers(0, 2),
)
def test_no_row_is_in_two_parts_and_train_comes_first(days: list[int], minutes: int, embargo_min: int) -> None:
    spans = {day: span for day, span in traffic(21, minutes=minutes).items() if (D - day).days in days}
    split: Split = split_days(spans, day=D, embargo_us=embargo_min * MINUTE_US)
    arrivals = sorted(at for first, last in spans.values() for at in range(first, last + 1, MINUTE_US))
    frame = pl.DataFrame({"arrived_at_us": arrivals})
    parts = [
        rows_of(frame, windows)["arrived_at_us"].to_list() for windows in (split.train, split.validation, split.test)
    ]
    together = [at for part in parts for at in part]
    assert len(together) == len(set(together))
    if split.mode is SplitMode.DAYS:
        assert max(parts[0]) < min(parts[1]) <= max(parts[1]) < min(parts[2])


@pytest.mark.parametrize(
    ("spans", "options", "text"),
    [
        (traffic(5), {"day": D + timedelta(days=1)}, "must have traffic"),
        ({}, {}, "must have traffic"),
        (traffic(5), {"history_days": 0}, "history_days"),
        (traffic(5), {"embargo_us": -1}, "embargo_us"),
        (traffic(2), {"embargo_us": 9 * MINUTE_US}, "embargo"),
        (traffic(5), {"embargo_us": 9 * DAY_US}, "embargo"),
        (traffic(5) | {D: (5, 4)}, {}, "first arrival"),
    ],
)
def test_impossible_splits_are_refused(
    spans: dict[date, tuple[int, int]], options: dict[str, object], text: str
) -> None:
    arguments: dict[str, object] = {"day": D, "embargo_us": 0} | options
    with pytest.raises(ModelError, match=text):
        split_days(spans, **arguments)  # type: ignore[arg-type]
