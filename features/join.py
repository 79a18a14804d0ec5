"""What the router could know when it decided: the newest samples of the nodes before the decision, by request or pair.

Both views take frames, or the partitions of lake days: those are read by duckdb, only the columns that are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from features.schemas import TABLES
from features.views import relation

if TYPE_CHECKING:
    import duckdb

Rows = pl.DataFrame | Sequence[Path]
"""Rows of a table, or the partitions that hold them."""
_SAMPLED = [
    name for name in TABLES["node_loads"].dtypes if name not in ("observed_at_us", "node", "role", "state", "source")
]
_SIDES = ("prefill", "decode")

# The future stays out by the inequality: a sample counts if it was taken `delay` before the decision or earlier.
_AS_OF = """
WITH
decided AS (SELECT {key} FROM {table} WHERE decided_at_us IS NOT NULL),
loads AS (SELECT node, observed_at_us, {sampled} FROM node_loads)
SELECT {columns}
FROM decided AS r
ASOF LEFT JOIN loads AS prefill
    ON r.prefill_node = prefill.node AND r.decided_at_us - {delay} >= prefill.observed_at_us
ASOF LEFT JOIN loads AS decode
    ON r.decode_node = decode.node AND r.decided_at_us - {delay} >= decode.observed_at_us
ORDER BY r.decided_at_us, r.request_id, r.prefill_node, r.decode_node
"""


def decision_time_view(requests: Rows, node_loads: Rows, *, delay_us: int = 0) -> pl.DataFrame:
    """One row a request with a decision: `prefill_*` and `decode_*` sample columns of its P and D as of that moment.

    Columns: request_id, decided_at_us; per side (`prefill`, `decode`) <side>_node, <side>_observed_at_us,
    <side>_telemetry_age_us and <side>_<column> of the table node_loads. A sample taken at s is known from s + delay_us
    on, never before; without one the columns are null. Sorted by decision and request id.
    """
    return _as_of("requests", requests, node_loads, delay_us, [])


def candidate_view(decisions: Rows, node_loads: Rows, *, delay_us: int = 0) -> pl.DataFrame:
    """One row a candidate pair: the state of its P and of its D as of the decision, chosen or not.

    Columns as of `decision_time_view`, and score and chosen of the table decisions. Its `telemetry_age_us` is what the
    router says of itself; <side>_telemetry_age_us here is what the samples say. Sorted by decision, request and pair.
    """
    return _as_of("decisions", decisions, node_loads, delay_us, ["score", "chosen"])


def _as_of(table: str, decided: Rows, node_loads: Rows, delay_us: int, kept: list[str]) -> pl.DataFrame:
    import duckdb

    columns = ["r.request_id", "r.decided_at_us", *(f"r.{name}" for name in kept)]
    for side in _SIDES:
        columns += [f"r.{side}_node", f"{side}.observed_at_us AS {side}_observed_at_us"]
        columns += [f"r.decided_at_us - {side}.observed_at_us AS {side}_telemetry_age_us"]
        columns += [f"{side}.{name} AS {side}_{name}" for name in _SAMPLED]
    sql = _AS_OF.format(
        key=", ".join(["request_id", "decided_at_us", *(f"{side}_node" for side in _SIDES), *kept]),
        table=table,
        sampled=", ".join(_SAMPLED),
        columns=", ".join(columns),
        delay=int(delay_us),
    )
    connection = duckdb.connect()
    try:
        _name(connection, table, decided)
        _name(connection, "node_loads", node_loads)
        found: pl.DataFrame = connection.sql(sql).pl()
        return found
    finally:
        connection.close()


def _name(connection: duckdb.DuckDBPyConnection, table: str, rows: Rows) -> None:
    if isinstance(rows, pl.DataFrame):
        connection.register(table, rows)
    elif rows:
        connection.execute(f"CREATE VIEW {table} AS {relation(table, rows)}")
    else:
        connection.register(table, pl.DataFrame(schema=TABLES[table].dtypes))
