"""Rows that break a rule go to quarantine with the rule, the file and the row; no row is lost.

Rows read = accepted + quarantined + skipped + duplicates, for every file and every batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import dataframely as dy
import polars as pl

from features.columns import text
from features.readers.lines import BadLine
from features.schemas import TABLES, with_all_columns

PROVENANCE: dict[str, Any] = {"source": pl.String, "source_file": pl.String, "source_row": pl.Int64}
QUARANTINE: dict[str, Any] = {"rule": pl.String, "rules": pl.List(pl.String), **PROVENANCE, "values": pl.String}
"""`rule`: the first broken rule, `<column>|<rule>` or a rule of the table. `values`: the row as JSON, null for a line
that could not be parsed."""
_KEY_RULE = "primary_key"
DECISION = ("request_id", "decided_at_us")


@dataclass(frozen=True, slots=True)
class Checked:
    """`accepted` has the table's columns and PROVENANCE, `quarantined` the columns of QUARANTINE."""

    accepted: pl.DataFrame
    quarantined: pl.DataFrame
    duplicates: int


def check(table: str, frame: pl.DataFrame) -> Checked:
    """Splits rows (the table's columns and PROVENANCE) by the table's rules.

    The first of several rows with one primary key stays, the others are duplicates. A decision of which a candidate is
    quarantined goes to quarantine as a whole: its propensities would not add up.
    """
    columns = list(TABLES[table].dtypes)
    extra = [name for name in PROVENANCE if name not in columns]
    given = _with_provenance(table, frame)
    content = [name for name in columns if name not in ("source_file", "source_row")]
    # Without a whole key nothing says that two equal rows are one.
    no_key = pl.any_horizontal(pl.col(TABLES[table].key).is_null())
    rows = given.filter(pl.struct(content).is_first_distinct() | no_key)
    good, failures = _tagged(table).filter(rows)
    accepted = pl.DataFrame(good)
    quarantined = _no_quarantine()
    if failures.counts():
        judged = _judged(failures)
        only_key = pl.col("rules") == [_KEY_RULE]
        same_key = judged.filter(only_key).select(accepted.columns)
        accepted = pl.concat([accepted, same_key]).sort("source_row", maintain_order=True)
        accepted = accepted.unique(subset=TABLES[table].key, keep="first", maintain_order=True)
        broken = judged.filter(~only_key)
        if table == "decisions":
            accepted, torn = _whole_decisions(accepted, broken)
            broken = pl.concat([broken.select(torn.columns), torn])
        quarantined = _quarantine(broken, columns)
    duplicates = given.height - accepted.height - quarantined.height
    return Checked(accepted.select(*columns, *extra), quarantined.sort("source_row", maintain_order=True), duplicates)


def bad_lines(bad: list[BadLine], source: str, file: str) -> pl.DataFrame:
    """Lines that could not be parsed, as quarantine rows."""
    return pl.DataFrame(
        {
            "rule": [line.rule for line in bad],
            "rules": [[line.rule] for line in bad],
            "source": [source] * len(bad),
            "source_file": [file] * len(bad),
            "source_row": [line.row for line in bad],
            "values": [None] * len(bad),
        },
        schema=QUARANTINE,
    )


def _judged(failures: dy.FailureInfo) -> pl.DataFrame:
    """Rows that broke a rule, with the names of all rules that they broke in `rules`."""
    details = failures.details()
    # Rules of one column first: they tell more than a rule of the table that fails with them.
    broken = sorted((name for name in failures.counts() if name in details.columns), key=lambda name: "|" not in name)
    marks = [pl.when(pl.col(name).cast(pl.String) == "invalid").then(pl.lit(name)) for name in broken]
    return details.with_columns(pl.concat_list(marks).list.drop_nulls().alias("rules"))


def _no_quarantine() -> pl.DataFrame:
    return pl.DataFrame(schema=QUARANTINE)


def _with_provenance(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    whole = with_all_columns(table, frame)
    missing = [name for name in PROVENANCE if name not in whole.columns]
    if frame.is_empty():
        return whole.with_columns(pl.lit(None, PROVENANCE[name]).alias(name) for name in missing)
    return whole.with_columns(frame[name] for name in missing)


def _quarantine(judged: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    return judged.select(
        pl.col("rules").list.first().alias("rule"),
        "rules",
        *PROVENANCE,
        pl.struct(columns).struct.json_encode().alias("values"),
    )


def _whole_decisions(accepted: pl.DataFrame, broken: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    key = list(DECISION)
    # A candidate with a null key cannot be matched to its decision; it stays alone.
    keys = broken.select(key).unique(maintain_order=True)
    whole = accepted.join(keys, on=key, how="anti", maintain_order="left")
    torn = accepted.join(keys, on=key, how="semi", maintain_order="left")
    return whole, torn.with_columns(pl.lit(["decision_incomplete"], pl.List(pl.String)).alias("rules"))


@cache
def _tagged(table: str) -> type[dy.Schema]:
    """The table's schema with the provenance columns that it lacks, so that a failure knows its file and row."""
    base = TABLES[table].schema
    missing = {name for name in PROVENANCE if name not in base.column_names()}
    columns: dict[str, Any] = {name: text() for name in sorted(missing - {"source_row"})}
    if "source_row" in missing:
        columns["source_row"] = dy.Int64(nullable=True)
    return type(f"Tagged{base.__name__}", (base,), columns)
