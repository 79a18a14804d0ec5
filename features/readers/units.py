"""Times of logs -> int64 unix microseconds."""

from __future__ import annotations

import polars as pl

SECOND_US = 1_000_000
MS_US = 1_000
_BEYOND = -2


def whole_us(value: pl.Expr, unit_us: int, *, since_us: int = 0) -> pl.Expr:
    """The nearest microsecond of a time in units of `unit_us` after `since_us`; null stays null.

    A number that int64 cannot hold stays wrong: it becomes negative, which breaks the rule of its column.
    """
    whole = (value * unit_us).round().cast(pl.Int64, strict=False)
    return pl.when(value.is_not_null() & whole.is_null()).then(_BEYOND).otherwise(whole + since_us)
