"""Tiny lakes for the tables of the diagnosis: rows by hand, times in milliseconds since 10:00 UTC."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from features.diagnosis.facts import DiagnosisFacts, Limits
from features.diagnosis.session import session
from features.diagnosis.tables import tables_of
from features.lake import Lake
from features.schemas import with_all_columns

DAY, POOL = date(2026, 11, 3), "chat"
START_US = (DAY - date(1970, 1, 1)).days * 86_400_000_000 + 36_000_000_000
TIMES = {
    "arrived": "arrived_at_us", "decided": "decided_at_us", "p_start": "prefill_started_at_us",
    "p_end": "prefill_finished_at_us", "t_start": "transfer_started_at_us", "t_end": "transfer_finished_at_us",
    "admitted": "decode_admitted_at_us", "first": "first_token_at_us", "end": "finished_at_us",
}  # fmt: skip

Row = dict[str, Any]


def us(ms: float) -> int:
    return START_US + round(ms * 1000)


def request(at: float = 0.0, **more: Any) -> Row:
    """A request that arrived and was decided at `at` ms; stage names of TIMES in ms, other columns as they are."""
    row: Row = {"arrived_at_us": us(at), "prompt_tokens": 1000, "output_tokens": 11, "finish_reason": "stop"}
    for name, value in more.items():
        row[TIMES.get(name, name)] = us(value) if name in TIMES and value is not None else value
    return row


def sample(at: float, node: str, role: str, **more: Any) -> Row:
    return {"observed_at_us": us(at), "node": node, "role": role, "block_tokens": 1} | more


def lake_of(folder: Path, *, requests: Sequence[Row] = (), loads: Sequence[Row] = (), **more: Sequence[Row]) -> Lake:
    """A lake of these rows; requests are named r0, r1, … in their order."""
    lake = Lake(folder)
    rows = [{"request_id": f"r{k}", "pool": POOL} | row for k, row in enumerate(requests)]
    for table, held in {"requests": rows, "node_loads": loads, **more}.items():
        if held:
            schema = with_all_columns(table, pl.DataFrame()).schema
            columns = {name: [row.get(name) for row in held] for name in schema if any(name in row for row in held)}
            frame = pl.DataFrame(columns, schema={name: schema[name] for name in columns})
            lake.write(table, DAY, POOL, frame, sources={})
    return lake


def tables(
    folder: Path,
    *,
    facts: DiagnosisFacts | None = None,
    limits: Limits | None = None,
    **rows: Sequence[Row],
) -> dict[str, list[Row]]:
    """All tables of a tiny lake."""
    known, used = facts or DiagnosisFacts(), limits or Limits()
    with session(lake_of(folder / "lake", **rows), [DAY], POOL, known, used, folder / "spill") as opened:
        return tables_of(opened, known, used)


def only(rows: Sequence[Row], **wanted: Any) -> Row:
    """The one row that has these values."""
    found = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    assert len(found) == 1, (wanted, rows)
    return found[0]
