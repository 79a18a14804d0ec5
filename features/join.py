"""What the router could know when it decided: each request with the newest samples of its nodes before its decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from features.schemas import TABLES

if TYPE_CHECKING:
    import duckdb

_SAMPLED = [
    name for name in TABLES["node_loads"].dtypes if name not in ("observed_at_us", "node", "role", "state", "source")
]

_AS_OF = """
SELECT
    r.request_id,
    r.decided_at_us,
    r.{side}_node AS node,
    n.observed_at_us,
    r.decided_at_us - n.observed_at_us AS telemetry_age_us,
    {columns}
FROM requests AS r
ASOF LEFT JOIN loads AS n ON r.{side}_node = n.node AND r.decided_at_us - {delay} >= n.observed_at_us
WHERE r.decided_at_us IS NOT NULL AND r.{side}_node IS NOT NULL
ORDER BY r.decided_at_us, r.request_id
"""


def decision_time_view(requests: pl.DataFrame, node_loads: pl.DataFrame, *, delay_us: int = 0) -> pl.DataFrame:
    """One row a request with a decision: `prefill_*` and `decode_*` sample columns of its P and D as of that moment.

    Columns: request_id, decided_at_us; per side (`prefill`, `decode`) <side>_node, <side>_observed_at_us,
    <side>_telemetry_age_us and <side>_<column> of the table node_loads. A sample taken at s is known from s + delay_us
    on, never before; without one the columns are null. Sorted by decision and request id.
    """
    import duckdb

    connection = duckdb.connect()
    try:
        decided = requests.filter(pl.col("decided_at_us").is_not_null())
        base = decided.select("request_id", "decided_at_us").sort("decided_at_us", "request_id")
        for side in ("prefill", "decode"):
            seen = _as_of(connection, side, decided, node_loads, delay_us)
            key = base.columns[:2]
            named = seen.select(pl.col(name).alias(name if name in key else f"{side}_{name}") for name in seen.columns)
            base = base.join(named, on=key, how="left", maintain_order="left")
        return base
    finally:
        connection.close()


def _as_of(
    connection: duckdb.DuckDBPyConnection, side: str, requests: pl.DataFrame, loads: pl.DataFrame, delay_us: int
) -> pl.DataFrame:
    connection.register("requests", requests.select("request_id", "decided_at_us", f"{side}_node"))
    connection.register("loads", loads.select("observed_at_us", "node", *_SAMPLED))
    columns = ", ".join(f"n.{name}" for name in _SAMPLED)
    found: pl.DataFrame = connection.sql(_AS_OF.format(side=side, columns=columns, delay=int(delay_us))).pl()
    connection.unregister("requests")
    connection.unregister("loads")
    return found
