"""What a router knew of each logged request when it arrived, as the length law reads it.

Rows are those of `features.length_history.with_length_history`, made of whole days.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from models.portable.length import Arrival
from policies.twin.workload import NAMED, NUMBERS, Arrivals

_COLUMNS = {name: name for name in NUMBERS} | {"turn": "session_turn"}
"""Number of an arrival -> its column."""


def arrivals(rows: pl.DataFrame, learned: npt.NDArray[np.bool_]) -> Arrivals:
    """Rows for the twin; `learned`: shape (rows,)."""
    names = pl.concat([rows[c].cast(pl.String) for c in NAMED]).drop_nulls().unique().sort().to_list()
    place = {name: at for at, name in enumerate(names)}
    codes = [rows[c].cast(pl.String).replace_strict(place, default=-1, return_dtype=pl.Int32) for c in NAMED]
    numbers = [rows[c].cast(pl.Float64).fill_null(float("nan")).to_numpy() for c in _COLUMNS.values()]
    return Arrivals(
        names=np.array(names, np.str_),
        named=np.stack([code.fill_null(-1).to_numpy() for code in codes], axis=1).astype(np.int32),
        numbers=np.stack(numbers, axis=1).astype(np.float64),
        learned=learned.astype(np.bool_),
    )


def each_arrival(rows: pl.DataFrame) -> Iterator[Arrival]:
    """Rows one by one; their class must be known."""
    known = rows.select("slo_class", "prompt_tokens", *NAMED, **{k: pl.col(c) for k, c in _COLUMNS.items()})
    return (Arrival(**row) for row in known.iter_rows(named=True))
