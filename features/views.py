"""Read-only SQL over the lake: one view a table, `quarantine`, and the views of features/sql/."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from features.errors import LakeError
from features.lake import DAY_FOLDER
from features.merge import quoted
from features.schemas import QUARANTINE, TABLES, with_all_columns

if TYPE_CHECKING:
    import duckdb

_SQL = Path(__file__).parent / "sql"
_READING = {"SELECT", "EXPLAIN"}
_QUARANTINE = "quarantine"
_KINDS = {pl.String: "VARCHAR", pl.Int64: "BIGINT", pl.Float64: "DOUBLE", pl.Boolean: "BOOLEAN"}


def connect(root: Path) -> duckdb.DuckDBPyConnection:
    """An in-memory connection that may open the lake's partitions and nothing else.

    Each view has its table's columns plus `day` (DATE) and `pool` of the partition. Times in it are UTC.
    `quarantine` has the rows of all tables that broke a rule, with the `table` that they were read for.
    """
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    opened: list[str] = []
    for table in TABLES:
        paths = [str(path) for path in sorted((root / table).glob(f"pool=*/{DAY_FOLDER}/part.parquet"))]
        opened += paths
        connection.execute(_view(table, paths))
    kept = [str(path) for path in sorted((root / _QUARANTINE).glob("*/pool=*/*.parquet"))]
    opened += kept
    connection.execute(_quarantine(kept))
    for path in sorted(_SQL.glob("*.sql")):
        connection.execute(f"CREATE VIEW {path.stem} AS {path.read_text('utf-8')}")
    connection.execute(f"SET allowed_paths = [{', '.join(map(quoted, opened))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def query(root: Path, sql: str) -> pl.DataFrame:
    """The rows of one reading statement.

    Raises LakeError if there is no lake, or `sql` is not exactly one SELECT (or EXPLAIN), or cannot be run.
    """
    import duckdb

    if not root.is_dir():
        raise LakeError("a lake must exist", place=str(root), hint="routecal ingest makes it")
    connection = None
    try:
        connection = connect(root)
        statements = connection.extract_statements(sql)
        kinds = [statement.type.name for statement in statements]
        if len(kinds) != 1 or kinds[0] not in _READING:
            raise LakeError("a query must be one SELECT", value=", ".join(kinds), hint="the lake is read-only here")
        rows: pl.DataFrame = connection.sql(sql).pl()
        return rows
    except pl.exceptions.PolarsError as error:
        raise LakeError("a column must be of a type that can be shown", hint="cast it, to VARCHAR say") from error
    except duckdb.Error as error:
        message = str(error).splitlines()[0]
        raise LakeError("a query must run", value=message, hint=f"views: {', '.join(view_names())}") from error
    finally:
        if connection is not None:
            connection.close()


def view_names() -> list[str]:
    """Names of all views: the tables first."""
    return [*TABLES, _QUARANTINE, *sorted(path.stem for path in _SQL.glob("*.sql"))]


def relation(table: str, paths: Sequence[Path | str]) -> str:
    """A SELECT of all columns of `table` from partitions; those written before a column existed have null in it."""
    columns = ", ".join(f'"{name}"' for name in TABLES[table].dtypes)
    listed = ", ".join(quoted(path) for path in paths)
    held = f"SELECT * FROM read_parquet([{listed}], union_by_name = true)"
    return f"SELECT {columns} FROM ({_empty(table)} UNION ALL BY NAME {held})"


def _view(table: str, paths: list[str]) -> str:
    columns = [f'"{column}"' for column in TABLES[table].dtypes if column != "pool"]
    names = ", ".join(["day", "pool", *columns])
    rows = _empty(table)
    if paths:
        listed = ", ".join(map(quoted, paths))
        options = "union_by_name = true, hive_partitioning = true, hive_types = {'day': DATE, 'pool': VARCHAR}"
        # The empty rows name every column: a partition written before a column existed lacks it.
        rows += f" UNION ALL BY NAME SELECT * FROM read_parquet([{listed}], {options})"
    return f"CREATE VIEW {table} AS SELECT {names} FROM ({rows})"


def _quarantine(paths: list[str]) -> str:
    columns = ", ".join(f'NULL::{_KINDS.get(dtype, "VARCHAR[]")} AS "{name}"' for name, dtype in QUARANTINE.items())
    rows = f'SELECT NULL::VARCHAR AS "table", NULL::VARCHAR AS pool, {columns} WHERE false'
    if paths:
        place = r"""regexp_extract(filename, '([^/]+)/pool=([^/]+)/[^/]+$', ['table', 'pool'])"""
        listed = ", ".join(map(quoted, paths))
        source = f"read_parquet([{listed}], filename = true, hive_partitioning = false)"
        rows += f" UNION ALL BY NAME SELECT unnest({place}), * EXCLUDE (filename) FROM {source}"
    return f"CREATE VIEW {_QUARANTINE} AS {rows}"


def _empty(table: str) -> str:
    """A relation without rows that has the table's columns."""
    fields = ["NULL::DATE AS day", *(["NULL::VARCHAR AS pool"] if "pool" not in TABLES[table].dtypes else [])]
    for column, dtype in with_all_columns(table, pl.DataFrame()).schema.items():
        if isinstance(dtype, pl.List):
            kind = "UBIGINT[]" if dtype.inner == pl.UInt64 else "DOUBLE[]"
        else:
            kind = _KINDS[type(dtype)]
        fields.append(f'NULL::{kind} AS "{column}"')
    return f"SELECT {', '.join(fields)} WHERE false"
