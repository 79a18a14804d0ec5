"""Makes lines of the published logs, and writes their JSON Schemas.

`python -m features.readers.published data/schemas` rewrites the schemas after a change of features/log_formats.py.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import polars as pl

from features.log_formats import LOGS, json_schema
from features.parquet import write_atomically
from features.readers.decision_log import CANDIDATE_FIELDS, DECISION_FIELDS
from features.readers.request_log import log_columns
from features.schemas import TERM_COLUMNS


def request_lines(requests: pl.DataFrame) -> bytes:
    """Rows of the table `requests` (missing columns allowed) as lines of the request log, in the frame's order."""
    named = [pl.col(name).cast(dtype) for name, dtype in log_columns().items() if name in requests.columns]
    return json_lines(requests.select(named))


def decision_lines(decisions: pl.DataFrame) -> bytes:
    """Rows of the table `decisions` (plus `pool` if known) as lines of the decision log, one a decision.

    Decisions come in order of their first row, candidates in the frame's order. Missing columns are left out.
    """
    shared = [name for name in DECISION_FIELDS if name in decisions.columns]
    terms = [
        pl.col(column).cast(pl.Float64).alias(term)
        for term, column in TERM_COLUMNS.items()
        if column in decisions.columns
    ]
    fields = [
        pl.col(name).cast(dtype)
        for name, dtype in CANDIDATE_FIELDS.items()
        if name != "terms" and name in decisions.columns
    ]
    whole = [*fields, pl.struct(terms).alias("terms")] if terms else fields
    candidates = pl.struct(whole).alias("candidates")
    return json_lines(decisions.group_by(shared, maintain_order=True).agg(candidates))


def write_schemas(folder: Path) -> list[Path]:
    """Writes the JSON Schema of every published log below `folder`. Returns the files."""
    written = []
    for log in LOGS:
        path = folder / f"{log}.json"
        write_atomically(path, schema_text(log).encode())
        written.append(path)
    return written


def schema_text(log: str) -> str:
    """A log's JSON Schema as it is published."""
    return json.dumps(json_schema(log), indent=2, ensure_ascii=False) + "\n"


def json_lines(frame: pl.DataFrame) -> bytes:
    """A frame as JSON lines."""
    held = io.BytesIO()
    frame.write_ndjson(held)
    return held.getvalue()


if __name__ == "__main__":
    for made in write_schemas(Path(sys.argv[1])):
        sys.stderr.write(f"{made}\n")
