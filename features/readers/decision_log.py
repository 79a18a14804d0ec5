"""`routecal-decisions`: the published decision log, one JSON object a decision, one row a candidate of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from features.readers.base import Batch, ReadContext, Reader, most_have, other_pool, without_null
from features.readers.head import Head
from features.readers.lines import ROW, read_lines
from features.schemas import TERM_COLUMNS

DECISION_FIELDS: dict[str, Any] = {
    "request_id": pl.String,
    "pool": pl.String,
    "decided_at_us": pl.Int64,
    "router_id": pl.String,
    "policy_version": pl.String,
    "telemetry_age_us": pl.Int64,
}
CANDIDATE_FIELDS: dict[str, Any] = {
    "prefill_node": pl.String(),
    "decode_node": pl.String(),
    "terms": pl.Struct(dict.fromkeys(TERM_COLUMNS, pl.Float64())),
    "score": pl.Float64(),
    "drawn": pl.Boolean(),
    "chosen": pl.Boolean(),
    "propensity": pl.Float64(),
}
_SCHEMA = {**DECISION_FIELDS, "candidates": pl.List(pl.Struct(CANDIDATE_FIELDS))}


def _sniff(head: Head) -> str:
    if most_have(head.objects, "request_id", "decided_at_us", "candidates"):
        return "lines have request_id, decided_at_us and candidates"
    return ""


def _read(path: Path, context: ReadContext) -> Iterator[Batch]:
    for parsed in read_lines(path, _SCHEMA):
        frame = parsed.frame
        mine, bare = without_null(frame.filter(~other_pool(context.pool)), "candidates")
        size = pl.col("candidates").list.len().fill_null(0).cast(pl.Int64)
        empty = mine.select((size == 0).sum()).item()
        skipped = {
            "other_pool": frame.filter(other_pool(context.pool)).select(size.clip(1).sum()).item(),
            "no_candidates": empty,
        }
        yield Batch(_candidates(mine.filter(size > 0)), [*parsed.bad, *bare], skipped)


def _candidates(decisions: pl.DataFrame) -> pl.DataFrame:
    terms = [pl.col("terms").struct.field(term).alias(column) for term, column in TERM_COLUMNS.items()]
    rows = decisions.explode("candidates")
    fields = [pl.col("candidates").struct.field(name) for name in CANDIDATE_FIELDS]
    return rows.select(*DECISION_FIELDS, ROW, *fields).with_columns(terms).drop("terms", "pool")


READER = Reader("routecal-decisions", "decisions", "decision log of routecal, one row a candidate", _sniff, _read)
