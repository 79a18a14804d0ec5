"""A duckdb session over one pool's partitions of some days, and the SQL files that are run in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from features.diagnosis.facts import DiagnosisFacts, Limits
from features.errors import LakeError
from features.lake import Lake
from features.parquet import row_count
from features.schemas import with_all_columns

if TYPE_CHECKING:
    import duckdb

_SQL = Path(__file__).parent / "sql"
_READ = ("requests", "node_loads", "steps", "decisions", "transfer_totals")
_BETWEEN = """
CREATE TEMP MACRO between_ms(a, b, known) AS
    CASE WHEN known IS NOT NULL AND a IS NOT NULL AND b IS NOT NULL THEN greatest(0, b - a) / 1000.0 END
"""


class Session:
    """Tables of one pool and some days. `build` keeps what a file selects under its name, `rows` returns it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def set(self, **values: float) -> None:
        """Set variables that the files read by getvariable()."""
        for name, value in values.items():
            self._connection.execute(f"SET VARIABLE {name} = {value!r}")

    def build(self, name: str, *, file: str | None = None) -> None:
        """Run a file and keep its rows as the table `name`."""
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {_text(file or name)}")

    def view(self, name: str, *, file: str) -> None:
        """Give a file's rows a name without keeping them: columns that nobody asks for are not read."""
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {_text(file)}")

    def drop(self, *names: str) -> None:
        """Give back what `build` kept."""
        for name in names:
            self._connection.execute(f"DROP TABLE IF EXISTS {name}")

    def rows(self, file: str, **texts: str) -> list[dict[str, Any]]:
        """Run a file and return its rows as plain values; `texts` fill its braces."""
        sql = _text(file)
        return self.ask(sql.format(**texts) if texts else sql)

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """Rows of one SELECT as plain values; floats have 12 digits, since threads add up in any order."""
        found = self._connection.execute(sql)
        names = [column[0] for column in found.description]
        return [dict(zip(names, map(_rounded, row), strict=True)) for row in found.fetchall()]

    def frame(self, sql: str) -> pl.DataFrame:
        """Rows of one SELECT as a frame."""
        found: pl.DataFrame = self._connection.sql(sql).pl()
        return found

    def one(self, file: str) -> dict[str, Any]:
        """The only row of a file, without values if there is none."""
        found = self.rows(file)
        return found[0] if found else {}


@contextmanager
def session(
    lake: Lake, days: Sequence[date], pool: str, facts: DiagnosisFacts, limits: Limits, spill: Path
) -> Iterator[Session]:
    """A session over the lake's partitions; `spill`: a folder of this run for what does not fit into memory.

    Raises LakeError if a partition is damaged.
    """
    import duckdb

    connection = duckdb.connect()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"SET memory_limit = '{limits.memory}'")
        connection.execute(f"SET threads = {limits.threads}")
        connection.execute(f"SET temp_directory = {_quoted(str(spill))}")
        connection.execute("SET preserve_insertion_order = false")
        # The estimate of what comes out of a join can be far too low; a nested loop over millions of rows is not.
        connection.execute("SET asof_loop_join_threshold = 0")
        connection.execute(_BETWEEN)
        for table in _READ:
            paths = [lake.path(table, day, pool) for day in sorted(set(lake.days(table, pool)) & set(days))]
            for path in paths:
                row_count(path)  # says which one is damaged, and what to do
            connection.register(f"no_{table}", with_all_columns(table, pl.DataFrame()))
            connection.execute(_view(table, paths))
        for name, frame in _facts(facts).items():
            connection.register(name, frame)
        yield Session(connection)
    except duckdb.Error as error:
        # What is wrong with a file has one of these kinds, what is wrong with our SQL another one.
        if type(error) not in (duckdb.Error, duckdb.IOException, duckdb.InvalidInputException):
            raise
        raise LakeError(
            "partitions must be readable", value=str(error).splitlines()[0], place=str(lake.root),
            hint="remove a damaged file and ingest its day again",
        ) from error  # fmt: skip
    finally:
        connection.close()


def _view(table: str, paths: Sequence[Path]) -> str:
    """The rows of some partitions; a partition that was written before a column existed has nulls there."""
    if not paths:
        return f"CREATE TEMP VIEW {table} AS SELECT * FROM no_{table}"  # noqa: S608  names are ours
    files = ", ".join(_quoted(str(path)) for path in paths)
    read = f"read_parquet([{files}], union_by_name = true, hive_partitioning = false)"
    return f"CREATE TEMP VIEW {table} AS SELECT * FROM no_{table} UNION ALL BY NAME SELECT * FROM {read}"  # noqa: S608


def _facts(facts: DiagnosisFacts) -> Mapping[str, pl.DataFrame]:
    """Tables `targets`, `nodes` and `uplinks`."""
    return {
        "targets": pl.DataFrame(
            [(c.name, c.ttft_ms, c.tpot_ms) for c in facts.classes],
            schema={"slo_class": pl.String, "ttft_target_ms": pl.Float64, "tpot_target_ms": pl.Float64},
            orient="row",
        ),
        "nodes": pl.DataFrame(
            [(n.name, n.role, n.rack, n.bytes_per_s) for n in facts.nodes],
            schema={"node": pl.String, "role": pl.String, "rack": pl.String, "bytes_per_s": pl.Float64},
            orient="row",
        ),
        "uplinks": pl.DataFrame(
            [(f"{u.from_rack} → {u.to_rack}", u.bytes_per_s) for u in facts.uplinks],
            schema={"path": pl.String, "bytes_per_s": pl.Float64},
            orient="row",
        ),
    }


def _rounded(value: Any) -> Any:  # noqa: ANN401  any value of a row
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _text(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text("utf-8")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
