"""Columns of a training table as arrays, with the table's contract checked on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from features.errors import ModelError
from models.metrics import FloatArray

LARGEST = 2.0**53


def require(frame: pl.DataFrame, columns: Sequence[str], *, table: str) -> None:
    """ModelError naming the columns that `frame` lacks."""
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise ModelError(f"`{table}` must have the columns {list(columns)}", value=f"missing {missing}", place=table)


def numeric(frame: pl.DataFrame, name: str, *, table: str, least: float) -> FloatArray:
    """A column as float64, shape (rows,), null = NaN. A column without a type is null throughout.

    ModelError for text, NaN, infinities, values below `least` or beyond 2^53, which no law could be written with.
    """
    column = frame[name]
    if column.dtype == pl.Null:
        column = column.cast(pl.Float64)
    if not column.dtype.is_numeric():
        raise ModelError("a column must be numeric", value=str(column.dtype), place=f"{table}.{name}")
    known = column.drop_nulls().cast(pl.Float64).to_numpy()
    if not np.isfinite(known).all():
        raise ModelError("a column must be finite", place=f"{table}.{name}")
    if known.size and known.min() < least:
        raise ModelError(f"`{name} >= {least}` must hold", value=float(known.min()), place=f"{table}.{name}")
    if known.size and known.max() > LARGEST:
        raise ModelError(f"`{name} <= 2^53` must hold", value=float(known.max()), place=f"{table}.{name}")
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy().astype(np.float64, copy=True)


def names(frame: pl.DataFrame, name: str, *, table: str) -> list[str]:
    """A column of names. ModelError for nulls and for anything that is not text."""
    column = frame[name]
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        raise ModelError("a column must be text", value=str(column.dtype), place=f"{table}.{name}")
    if column.null_count():
        raise ModelError("a column must have no nulls", value=column.null_count(), place=f"{table}.{name}")
    found: list[str] = column.cast(pl.String).to_list()
    return found
