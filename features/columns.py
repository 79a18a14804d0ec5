"""Building blocks of the table schemas: bounds, column kinds and row conditions.

Conditions hold for a row whose values are unknown (null).
"""

from __future__ import annotations

import dataframely as dy
import polars as pl

TIME_MIN_US = 1_420_070_400_000_000
"""2015-01-01T00:00:00Z."""
TIME_MAX_US = 4_102_444_800_000_000
"""2100-01-01T00:00:00Z."""
TOKENS_END = 2**31
"""No request is as long: what is, is another unit or a damaged number. The twin counts tokens in 32 bits."""
CLOCK_SKEW_US = 100_000
"""Order of times from different hosts is judged with this tolerance; times of one host are judged without."""


def time(*, nullable: bool = True, primary_key: bool = False) -> dy.Int64:
    """A time, int64 unix microseconds UTC, in 2015..2100."""
    return dy.Int64(nullable=nullable, primary_key=primary_key, min=TIME_MIN_US, max_exclusive=TIME_MAX_US)


def count(*, nullable: bool = True, minimum: int = 0) -> dy.Int64:
    """An integer of at least `minimum`."""
    return dy.Int64(nullable=nullable, min=minimum)


def tokens(*, nullable: bool = True, minimum: int = 0) -> dy.Int64:
    """Tokens of one request: fewer than TOKENS_END."""
    return dy.Int64(nullable=nullable, min=minimum, max_exclusive=TOKENS_END)


def number(*, low: float | None = None, high: float | None = None) -> dy.Float64:
    """A float, in [low, high] where given."""
    return dy.Float64(nullable=True, min=low, max=high)


def text(*, nullable: bool = True, primary_key: bool = False) -> dy.String:
    """A text of at least one character."""
    return dy.String(nullable=nullable, primary_key=primary_key, min_length=1)


def in_order(*columns: str, tolerance_us: int = 0) -> pl.Expr:
    """Each known time is not before the known ones left of it."""
    pairs = [(columns[at], later) for i, later in enumerate(columns) for at in range(i)]
    return pl.all_horizontal(
        (pl.col(later) + tolerance_us >= pl.col(earlier)).fill_null(value=True) for earlier, later in pairs
    )


def at_most(column: str, bound: str) -> pl.Expr:
    """`column` is not above the column `bound`."""
    return (pl.col(column) <= pl.col(bound)).fill_null(value=True)


def one_of(column: str, values: tuple[str, ...]) -> pl.Expr:
    """The text is one of `values`."""
    return pl.col(column).is_in(list(values)).fill_null(value=True)
