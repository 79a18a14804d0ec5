"""Rows that follow from other tables: rebuilt for every day whose origin changed, never merged by hand.

Each derivation is one SQL file: a SELECT over a view named as its origin, with the origin's columns. What it yields are
rows of its target; `source` is the derivation's name. Requests that hosts tell in pieces meet the firewall here: the
clocks of several hosts stand in one row for the first time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from features.errors import LakeError
from features.firewall.facts import PoolFacts
from features.firewall.judges import Judge, judge_of
from features.lake import Lake
from features.merge import batches, spilling
from features.naming import ClassRule, classify
from features.quality import check
from features.schemas import PROVENANCE, TABLES
from features.staging import Staging
from features.views import relation

if TYPE_CHECKING:
    import duckdb

_SQL = Path(__file__).parent
_MEMORY = "2GB"
"""The state of an aggregate over many columns is not spilled: a day of spans is held by request."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """`<file>.sql`: rows of `target` from rows of `origin`.

    `neighbours`: how many days before and after a day its rows may need; rows of those days themselves are left out.
    `strays`: a row may stand on a day of which the origin has no row (a request whose spans are of the day after).
    """

    name: str
    origin: str
    target: str
    file: str
    neighbours: int = 0
    strays: bool = False

    @property
    def sql(self) -> str:
        """Its SELECT."""
        return (_SQL / f"{self.file}.sql").read_text("utf-8")


DERIVATIONS: tuple[Derivation, ...] = (
    Derivation("prometheus", "metric_samples", "node_loads", "loads_from_metrics", 1),
    Derivation("prometheus", "metric_samples", "steps", "steps_from_metrics", 1),
    Derivation("prometheus", "metric_samples", "transfer_totals", "transfers_from_metrics", 1),
    Derivation("decode_moments", "node_loads", "steps", "steps_from_decode_moments", 1),
    Derivation("prefill_counters", "node_loads", "steps", "steps_from_prefill_counters", 1),
    Derivation("spans", "request_parts", "requests", "requests_from_parts", 1, strays=True),
    Derivation("scores", "decision_parts", "decisions", "decisions_from_parts"),
)
"""In the order in which they run: an origin stands behind what it is derived from."""


@dataclass(slots=True)
class Derived:
    """What derivations did. `rows`: table -> rows that a derivation wrote; `rules`: broken rule -> rows.

    `corrected`: rule -> rows that were set right; `offsets_us`: node -> what was added to its times on the last day.
    """

    rows: dict[str, int] = field(default_factory=dict)
    rules: dict[str, int] = field(default_factory=dict)
    corrected: Counter[str] = field(default_factory=Counter)
    offsets_us: dict[str, int] = field(default_factory=dict)
    partitions: set[str] = field(default_factory=set)


def derive(
    lake: Lake,
    pool: str,
    touched: Sequence[tuple[str, date]],
    staging: Staging,
    facts: PoolFacts | None = None,
    class_rules: Sequence[ClassRule] = (),
) -> Derived:
    """Rebuilds what follows from the touched (table, day)s. The same origin gives the same rows and bytes.

    `facts` of the pool sharpen the firewall, which takes the requests of a day for one log. `class_rules` give derived
    requests their class; tenants in them are as the lake has them, hashed.
    """
    if not any(derivation.origin == table for derivation in DERIVATIONS for table, _ in touched):
        return Derived()
    with closing(spilling(staging.folder, _MEMORY)) as connection:
        run = _Run(lake, pool, staging, facts or PoolFacts(), connection, tuple(class_rules))
        changed = set(touched)
        for derivation in DERIVATIONS:
            days = sorted(day for table, day in changed if table == derivation.origin)
            reach = range(-derivation.neighbours, derivation.neighbours + 1)
            for day in sorted({day + timedelta(days=back) for day in days for back in reach}):
                if _derive_day(run, derivation, day):
                    changed.add((derivation.target, day))
    return run.done


@dataclass(frozen=True, slots=True)
class _Run:
    """What the derivations of an ingest share."""

    lake: Lake
    pool: str
    staging: Staging
    facts: PoolFacts
    connection: duckdb.DuckDBPyConnection
    class_rules: tuple[ClassRule, ...]
    done: Derived = field(default_factory=Derived)


def _derive_day(run: _Run, derivation: Derivation, day: date) -> bool:
    """Whether the day has or had derived rows."""
    lake, pool, done = run.lake, run.pool, run.done
    judge = judge_of(derivation.target, run.facts) if derivation.target == "requests" else Judge({})
    reach = range(-derivation.neighbours, derivation.neighbours + 1)
    days = [day + timedelta(days=back) for back in reach]
    held = day in lake.days(derivation.target, pool)
    if not (derivation.strays or held or lake.path(derivation.origin, day, pool).exists()):
        return False
    paths = [path for d in days if (path := lake.path(derivation.origin, d, pool)).exists()]
    staged = run.staging.file()
    bad: list[pl.DataFrame] = []
    time = pl.from_epoch(TABLES[derivation.target].time_column, time_unit="us").dt.date()
    for frame in _rows(derivation, paths, run.connection):
        mine = _placed(derivation, frame, pool).filter(time == day)
        if derivation.target == "requests":
            mine = classify(mine, run.class_rules)
        checked = check(derivation.target, mine, judge.rules)
        if checked.accepted.height:
            judge.see(checked.accepted)
            staged.add(derivation.target, day, checked.accepted)
        if checked.quarantined.height:
            bad.append(checked.quarantined)
    verdict = judge.judge(staged, derivation.target)
    done.corrected.update(verdict.corrected)
    done.offsets_us.update(verdict.offsets_us)
    _quarantine(run, derivation, day, [*bad, *verdict.quarantined])
    key = (derivation.target, day)
    parts = staged.parts[key] if staged.rows.get(key) else []
    if not parts and not held:
        return False
    source = f"{derivation.name} of {derivation.origin}"
    digests = "+".join(lake.digest(derivation.origin, d, pool) for d in days if d in lake.days(derivation.origin, pool))
    merged = lake.merge_staged(
        derivation.target, day, pool, parts, run.staging, sources={source: digests}, replacing=derivation.name
    )
    staged.drop()
    done.rows[derivation.target] = done.rows.get(derivation.target, 0) + merged.added
    done.partitions.add(merged.partition.name)
    return True


def _quarantine(run: _Run, derivation: Derivation, day: date, bad: Sequence[pl.DataFrame]) -> None:
    """Keeps and counts derived rows that broke a rule."""
    if bad:
        whole = pl.concat(bad)
        for rule, rows in whole["rule"].value_counts().rows():
            run.done.rules[rule] = run.done.rules.get(rule, 0) + rows
        run.lake.write_quarantine(derivation.target, run.pool, f"{derivation.name[:5]}-{day.isoformat()}", [whole])


def _rows(
    derivation: Derivation, paths: Sequence[Path], connection: duckdb.DuckDBPyConnection
) -> Iterator[pl.DataFrame]:
    if not paths:
        return
    import duckdb

    order = ", ".join(TABLES[derivation.target].order)  # what comes first must not depend on threads
    try:
        connection.execute(f"CREATE OR REPLACE VIEW {derivation.origin} AS {relation(derivation.origin, paths)}")
        yield from batches(connection, f"FROM (\n{derivation.sql}\n) ORDER BY {order}")
    except duckdb.Error as error:
        place = f"features/derived/{derivation.file}.sql"
        raise LakeError("a derivation must run", value=str(error).splitlines()[0], place=place) from error


def _placed(derivation: Derivation, frame: pl.DataFrame, pool: str) -> pl.DataFrame:
    """Rows with what every row of the target has. What comes of many rows need not name a file and line."""
    unknown = {name: pl.lit(None, dtype) for name, dtype in PROVENANCE.items() if name not in frame.columns}
    placed = frame.with_columns(**unknown).with_columns(source=pl.lit(derivation.name))
    return placed.with_columns(pool=pl.lit(pool)) if "pool" in TABLES[derivation.target].dtypes else placed
