"""Rows that break a rule go to quarantine with the rule, its reason, the file and the row; no row is lost.

Rows read = accepted + quarantined + skipped + duplicates, for every file. Rules of a table stand in its schema; what is
physically impossible or contradicts other rows is judged by features/firewall/.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import dataframely as dy
import polars as pl

from features.columns import text
from features.readers.lines import BadLine
from features.schemas import PROVENANCE, QUARANTINE, TABLES, with_all_columns

DECISION = ("request_id", "decided_at_us")
Rules = Mapping[str, Callable[[pl.DataFrame], pl.Series]]
"""Name of a rule -> whether each row keeps it."""

REASONS: dict[str, str] = {
    "json": "the line is not JSON",
    "json_object": "the line is JSON, but no object",
    "utf8": "the line is not UTF-8",
    "csv": "the line does not have the fields of the header",
    "csv_fields": "the line has fewer or more fields than the header",
    "csv_quote": "a quote is not closed on its line, or stands inside a field",
    "file_cut_short": "the packed file ends early or is damaged; what stands before the fault was read",
    "file_unreadable": "nothing in the file could be read",
    "decision_incomplete": "another candidate of the decision broke a rule, so its propensities do not add up",
    "type": "the value is of another type",
    "nullability": "the value must be known",
    "min": "the value is below the smallest possible one",
    "max": "the value is above the largest possible one",
    "max_exclusive": "the value is above the largest possible one",
    "min_length": "the text or list is too short",
    "max_length": "the text or list is too long",
    "nan": "the value is not a number",
    "inf": "the value is not finite",
    "inner_nullability": "a value of the list must be known",
    "inner_min": "a value of the list is below the smallest possible one",
    "inner_max": "a value of the list is above the largest possible one",
    "inner_nan": "a value of the list is not a number",
    "inner_inf": "a value of the list is not finite",
    "exposition": "the line is no sample of the Prometheus text format",
    "session_forgotten": "more sessions are open than are held, and this one was unseen the longest",
}
"""Rule, or what stands behind the `|` of a column's rule -> its reason. Rules of a table add their docstrings."""


@dataclass(frozen=True, slots=True)
class Checked:
    """`accepted` has the table's columns and PROVENANCE, `quarantined` the columns of QUARANTINE.

    `duplicates`: rows that repeat a candidate of a decision, which would count twice in the decision's rules.
    """

    accepted: pl.DataFrame
    quarantined: pl.DataFrame
    duplicates: int = 0


def check(table: str, frame: pl.DataFrame, rules: Rules | None = None) -> Checked:
    """Splits rows (the table's columns and PROVENANCE) by the table's rules, and by `rules` on those that kept them.

    Keys that occur twice are not judged here: the merge into the partition sees all of them. A decision of which a
    candidate is quarantined goes to quarantine as a whole: its propensities would not add up.
    """
    columns = list(TABLES[table].dtypes)
    given = _with_provenance(table, frame)
    if table == "decisions":
        no_key = pl.any_horizontal(pl.col(TABLES[table].key).is_null())
        given = given.filter(pl.struct(TABLES[table].key).is_first_distinct() | no_key)
    good, failures = _tagged(table).filter(given)
    accepted, quarantined = pl.DataFrame(good), [_no_quarantine()]
    if failures.counts():
        broken = _judged(failures)
        if table == "decisions":
            accepted, torn = _whole_decisions(accepted, broken)
            broken = pl.concat([broken.select(torn.columns), torn])
        quarantined.append(_quarantine(broken, columns))
    if rules:
        kept = split(table, accepted, rules)
        accepted = kept.accepted
        quarantined.append(kept.quarantined)
    extra = [name for name in PROVENANCE if name not in columns]
    bad = pl.concat(quarantined).sort("source_row", maintain_order=True)
    return Checked(accepted.select(*columns, *extra), bad, frame.height - given.height)


def split(table: str, frame: pl.DataFrame, rules: Rules) -> Checked:
    """Splits rows by `rules` alone; the first one that a row breaks names its quarantine."""
    keeps = {name: holds(frame).fill_null(value=True) for name, holds in rules.items()}
    broken = [name for name, kept in keeps.items() if not kept.all()]
    if not broken or frame.is_empty():
        return Checked(frame, _no_quarantine())
    marks = frame.with_columns(
        pl.concat_list(
            pl.when(~pl.lit(keeps[name])).then(pl.lit(name)).otherwise(pl.lit(None, pl.String)) for name in broken
        )
        .list.drop_nulls()
        .alias("rules")
    )
    clean = pl.col("rules").list.len() == 0
    bad = marks.filter(~clean)
    return Checked(marks.filter(clean).drop("rules"), _quarantine(bad, list(TABLES[table].dtypes)))


def bad_lines(bad: list[BadLine], source: str, file: str) -> pl.DataFrame:
    """Lines that could not be parsed, as quarantine rows."""
    return pl.DataFrame(
        {
            "rule": [line.rule for line in bad],
            "rules": [[line.rule] for line in bad],
            "reason": [reason_of(line.rule) for line in bad],
            "source": [source] * len(bad),
            "source_file": [file] * len(bad),
            "source_row": [line.row for line in bad],
            "values": [None] * len(bad),
        },
        schema=QUARANTINE,
    )


def reason_of(rule: str) -> str:
    """A rule for people: what must hold, or what is wrong."""
    column, _, kind = rule.rpartition("|")
    known = {**_table_reasons(), **REASONS}
    return f"`{column}`: {known.get(kind, kind)}" if column else known.get(rule, rule)


@cache
def _table_reasons() -> dict[str, str]:
    """Docstrings of the rules that stand in schemas."""
    found: dict[str, str] = {}
    for table in TABLES.values():
        for name, rule in vars(table.schema).items():
            function = getattr(rule, "validation_fn", None)
            if function is not None and function.__doc__:
                found[name] = "must hold: " + function.__doc__.strip().rstrip(".").replace("\n", " ")
    return found


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
    first = pl.col("rules").list.first()
    names = judged.select(first.unique())["rules"].drop_nulls().to_list()
    reasons = {name: reason_of(name) for name in names}
    return judged.select(
        first.alias("rule"),
        "rules",
        first.replace_strict(reasons, return_dtype=pl.String).alias("reason"),
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
    """The table's schema with the provenance columns that it lacks, and without its key's uniqueness."""
    base = TABLES[table].schema
    missing = {name for name in PROVENANCE if name not in base.column_names()}
    columns: dict[str, Any] = {name: text() for name in sorted(missing - {"source_row"})}
    if "source_row" in missing:
        columns["source_row"] = dy.Int64(nullable=True)
    for name in base.primary_key():
        column = copy.copy(base.columns()[name])
        column.primary_key, column.nullable = False, False
        columns[name] = column
    return type(f"Tagged{base.__name__}", (base,), columns)
