"""Which traffic trains, which chooses and which tests: by time, with an embargo.

The night of day D sees the days with traffic among the last `history_days` up to D. Test = D, validation = the 3 days
before (1 if fewer than 7 days are there), train = the rest up to the embargo before validation. First nights: under 2
days there is nothing to hold out; 2 or 3 days are split inside each day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum

import polars as pl

from features.errors import ModelError

VALIDATION_DAYS = 3
SHORT_VALIDATION_DAYS = 1
LONG_HISTORY_DAYS = 7
FULL_SPLIT_DAYS = 4
INSIDE_TRAIN_FRAC, INSIDE_VALIDATION_FRAC = 0.5, 0.75


class SplitMode(StrEnum):
    """How much a history allows."""

    DAYS = "days"
    """Whole days are held out: every claim is open."""
    INSIDE_DAYS = "inside_days"
    """Each day is cut into train, validation and test: promotion ends at `shadow`."""
    TRAIN_ONLY = "train_only"
    """One day: estimators and diagnosis, no policy is judged."""


@dataclass(frozen=True, slots=True)
class Window:
    """Arrivals of one day with start_us <= arrived_at_us < end_us, unix microseconds."""

    day: date
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Split:
    """Windows in time order; no request of `train` is still in flight when a held-out window of the same cut begins."""

    mode: SplitMode
    train: tuple[Window, ...]
    validation: tuple[Window, ...]
    test: tuple[Window, ...]

    @property
    def promotion_cap(self) -> str:
        """The highest promotion that this split can justify: 'none', 'shadow' or 'current'."""
        return {SplitMode.DAYS: "current", SplitMode.INSIDE_DAYS: "shadow", SplitMode.TRAIN_ONLY: "none"}[self.mode]


def split_days(
    traffic: Mapping[date, tuple[int, int]],
    *,
    day: date,
    history_days: int = 14,
    embargo_us: int,
    not_before: date | None = None,
) -> Split:
    """The split of the night of `day`.

    `traffic`: first and last arrival of each day that has requests, unix microseconds. `embargo_us`: longest request,
    arrival to last token. `not_before`: first day after a break (new model build, engine or topology).
    ModelError if `day` has no traffic or an argument is out of range.
    """
    if history_days < 1 or embargo_us < 0:
        raise ModelError("`history_days >= 1` and `embargo_us >= 0` must hold", value=(history_days, embargo_us))
    first = day - timedelta(days=history_days - 1)
    if not_before is not None:
        first = max(first, not_before)
    days = sorted(d for d in traffic if first <= d <= day)
    if not days or days[-1] != day:
        raise ModelError("the night's day must have traffic after the last break", value=day.isoformat())
    for d in days:
        if traffic[d][0] > traffic[d][1]:
            raise ModelError("`first arrival <= last arrival` must hold", value=traffic[d], place=d.isoformat())
    windows = [Window(d, traffic[d][0], traffic[d][1] + 1) for d in days]
    if len(days) == 1:
        return Split(SplitMode.TRAIN_ONLY, tuple(windows), (), ())
    if len(days) < FULL_SPLIT_DAYS:
        return _inside_days(windows, embargo_us)
    held = VALIDATION_DAYS if len(days) >= LONG_HISTORY_DAYS else SHORT_VALIDATION_DAYS
    validation = tuple(windows[-1 - held : -1])
    limit = validation[0].start_us - embargo_us
    return Split(SplitMode.DAYS, _until(windows[: -1 - held], limit), validation, (windows[-1],))


def rows_of(frame: pl.DataFrame, windows: Iterable[Window], *, time: str = "arrived_at_us") -> pl.DataFrame:
    """The rows whose `time` falls into one of the windows, in the frame's order."""
    inside = pl.lit(value=False)
    for window in windows:
        inside = inside | ((pl.col(time) >= window.start_us) & (pl.col(time) < window.end_us))
    return frame.filter(inside)


def _inside_days(windows: list[Window], embargo_us: int) -> Split:
    """Each day's traffic in time: train, embargo, validation, embargo, test."""
    train: list[Window] = []
    validation: list[Window] = []
    test: list[Window] = []
    for window in windows:
        length = window.end_us - window.start_us
        choose = window.start_us + round(length * INSIDE_TRAIN_FRAC)
        judge = window.start_us + round(length * INSIDE_VALIDATION_FRAC)
        train += _until([Window(window.day, window.start_us, choose)], choose - embargo_us)
        validation += _until([Window(window.day, choose, judge)], judge - embargo_us)
        test.append(Window(window.day, judge, window.end_us))
    return Split(SplitMode.INSIDE_DAYS, tuple(train), tuple(validation), tuple(test))


def _until(windows: list[Window], limit_us: int) -> tuple[Window, ...]:
    """The parts of the windows before `limit_us`. ModelError if nothing is left."""
    cut = tuple(Window(w.day, w.start_us, min(w.end_us, limit_us)) for w in windows if w.start_us < limit_us)
    if not cut:
        raise ModelError(
            "the embargo must leave traffic on its early side",
            value=f"{len(windows)} window(s) end {max(w.end_us for w in windows)}, limit {limit_us} us",
            hint="is one request's finish time wrong, or is the history too short?",
        )
    return cut
