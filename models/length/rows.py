"""Rows of finished requests: what a router knew at arrival, and how long the answer became.

Columns: `arrived_at_us, slo_class, prompt_tokens, output_tokens`, and `finish_reason` or else `censored` (the output
was cut); optional: those of OPTIONAL. `features.tables.length_table` has them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from features.errors import ModelError
from features.length_history import UNFINISHED
from models.columns import LARGEST, numeric, require
from models.metrics import BoolArray, FloatArray, IntArray
from models.portable.length import ALL

COLUMNS = ("arrived_at_us", "slo_class", "prompt_tokens", "output_tokens")
TEXTS = ("app", "tenant", "model")
NUMBERS = (
    "max_output_tokens", "cached_frac", "session_turn", "previous_output", "session_mean_output", "hour",
    "recent_output", "ended_at_us",
)  # fmt: skip
OPTIONAL = (*TEXTS, *NUMBERS)


@dataclass(frozen=True, slots=True)
class LengthRows:
    """Usable requests, oldest first, in `frame` (COLUMNS and OPTIONAL; unknown = null).

    `output`, shape (rows,): tokens, at most `max_output_tokens`. `censored`: cut off by their limit; they count with
    the length they reached. `excluded`: requests that did not finish or whose length is unknown.
    """

    frame: pl.DataFrame
    output: FloatArray
    censored: BoolArray
    excluded: int

    @property
    def count(self) -> int:
        """Number of rows."""
        return self.frame.height

    @property
    def log_output(self) -> FloatArray:
        """Log of the output, of at least one token."""
        found: FloatArray = np.log(np.maximum(self.output, 1.0))
        return found

    def at(self, rows: IntArray) -> LengthRows:
        """Some of the rows, in the given order."""
        return LengthRows(self.frame[rows], self.output[rows], self.censored[rows], 0)

    def column(self, name: str) -> FloatArray:
        """A column of numbers, shape (rows,), null = NaN."""
        found: FloatArray = self.frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        return found

    def keys(self) -> tuple[list[str], list[str], IntArray]:
        """Keys `<class>/<app>` (`<class>` without app, `*` without class), sorted; their classes; each row's key."""
        of_class = pl.col("slo_class").fill_null(ALL)
        own = pl.when(pl.col("app").is_null()).then(of_class).otherwise(pl.concat_str(of_class, pl.lit("/"), "app"))
        named = self.frame.select(key=own, of=of_class)
        found = named.unique().sort("key", "of").unique("key", keep="first", maintain_order=True)
        places = named.join(found.with_row_index("place"), on="key", how="left", maintain_order="left")["place"]
        return found["key"].to_list(), found["of"].to_list(), places.cast(pl.Int64).to_numpy()


def read_lengths(table: pl.DataFrame) -> LengthRows:
    """One row a request. ModelError if a column is missing or damaged, or a class is named `*`."""
    require(table, COLUMNS, table="lengths")
    table = table.with_columns(
        pl.lit(None, pl.String if name in TEXTS else pl.Float64).alias(name)
        for name in OPTIONAL
        if name not in table.columns
    )
    dropped, censored = _ending(table)
    known = pl.col("output_tokens").is_not_null() & pl.col("prompt_tokens").is_not_null()
    used = table.filter(known & ~dropped).select(
        "arrived_at_us",
        "prompt_tokens",
        *NUMBERS,
        pl.col("slo_class", *TEXTS).cast(pl.String),
        "output_tokens",
        censored=censored,
    )
    # Every column that a fit reads breaks ties: the same rows in any order give the same law.
    ties = ["prompt_tokens", "output_tokens", "slo_class", *TEXTS, *NUMBERS]
    used = used.sort("arrived_at_us", *ties, nulls_last=True)
    if (used["slo_class"] == ALL).any():
        raise ModelError(f"`{ALL}` stands for all classes and cannot name one", place="lengths.slo_class")
    if np.isnan(numeric(used, "arrived_at_us", table="lengths", least=-LARGEST)).any():
        raise ModelError("a column must have no nulls", place="lengths.arrived_at_us")
    for name in ("prompt_tokens", *NUMBERS):
        known_values = numeric(used, name, table="lengths", least=-LARGEST if name == "ended_at_us" else 0.0)
        if name == "cached_frac" and (known_values > 1.0).any():
            raise ModelError(
                "`cached_frac <= 1` must hold", value=float(np.nanmax(known_values)), place=f"lengths.{name}"
            )
    output = numeric(used, "output_tokens", table="lengths", least=0.0)
    limit = used["max_output_tokens"].cast(pl.Float64).fill_null(float("inf")).to_numpy()
    return LengthRows(
        frame=used.drop("censored", "output_tokens"),
        output=np.minimum(output, limit),
        censored=used["censored"].to_numpy().astype(np.bool_),
        excluded=table.height - used.height,
    )


def spread(keys: IntArray, limit: int, least: int) -> IntArray:
    """Places of about `limit` rows, ascending: of each key every k-th row, at least `least` of it where it has them.

    `keys`: shape (rows,), rows in time order, so every key and every time keep their part.
    """
    count = keys.size
    if count <= limit:
        return np.arange(count)
    order = np.argsort(keys, kind="stable")
    sizes = np.bincount(keys)
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(count) - np.repeat(starts, sizes)
    share = limit / count
    kept = np.maximum(sizes * share, np.minimum(sizes, least))
    kept[sizes == 0] = 1.0  # a number between the keys that is none
    stride = np.maximum(1, np.round(sizes / kept)).astype(np.int64)
    found: IntArray = np.sort(order[rank % np.repeat(stride, sizes) == 0])
    return found


def check_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """The levels. ModelError unless they ascend inside (0, 1)."""
    found = tuple(levels)
    if not found or found[0] <= 0.0 or found[-1] >= 1.0 or sorted(set(found)) != [*found]:
        raise ModelError("levels must ascend inside (0, 1)", value=found)
    return found


def _ending(table: pl.DataFrame) -> tuple[pl.Expr, pl.Expr]:
    """Rows that did not finish, and rows that hit their limit.

    How long a cancelled answer would have become is anyone's guess: it is not a length. A log without finish reasons
    holds finished requests: a null reason is no reason to drop a length.
    """
    if "finish_reason" in table.columns:
        reason = pl.col("finish_reason").cast(pl.String)
        return reason.is_in(UNFINISHED).fill_null(value=False), (reason == "length").fill_null(value=False)
    if "censored" not in table.columns:
        raise ModelError(
            "`lengths` must have the column finish_reason or censored", value=table.columns, place="lengths"
        )
    cut = pl.col("censored").cast(pl.Boolean).fill_null(value=False)
    at_limit = (pl.col("output_tokens") >= pl.col("max_output_tokens")).fill_null(value=False)
    return cut & ~at_limit, cut & at_limit
