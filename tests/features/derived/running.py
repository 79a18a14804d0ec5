"""Runs one derivation over rows of its origin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl

import features.derived
from features.schemas import TABLES, with_all_columns
from tests.features.logs import START_US

SECOND = 1_000_000


def derived(file: str, origin: str, rows: list[dict[str, Any]], target: str) -> pl.DataFrame:
    """What the SELECT in `file` gives, in the order of `target`; each of its columns is one of the target's."""
    frame = pl.DataFrame(rows, infer_schema_length=None) if rows else pl.DataFrame()
    sql = (Path(features.derived.__path__[0]) / f"{file}.sql").read_text("utf-8")
    connection = duckdb.connect()
    connection.register(origin, with_all_columns(origin, frame).to_arrow())
    found = connection.sql(sql).pl()
    assert set(found.columns) <= set(TABLES[target].dtypes)
    return with_all_columns(target, found).sort(
        *(name for name in TABLES[target].order if name != "source"), maintain_order=True
    )


def sample(at_s: float, metric: str, value: float, labels: str = "", node: str = "n0/dp0") -> dict[str, Any]:
    """A metric sample `at_s` seconds after START_US."""
    return {
        "observed_at_us": START_US + round(at_s * SECOND),
        "node": node,
        "metric": metric,
        "labels": labels,
        "value": float(value),
    }
