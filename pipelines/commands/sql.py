"""`routecal sql`: one SELECT over the lake."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.options import AsJson, LakePath, SettingsPath, lake_root, settings_if_any
from pipelines.console import emit, say

if TYPE_CHECKING:
    import polars as pl


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT over the lake's views.")],
    *,
    lake: LakePath = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows that are shown; --json has all of them.")] = 50,
    settings_path: SettingsPath = None,
    as_json: AsJson = False,
) -> None:
    """Ask the lake in SQL, read only. Its tables are those of features/schemas.py and features/sql: SHOW TABLES."""
    from features.views import query as run

    root = lake_root(lake, None if lake else settings_if_any(settings_path))
    rows = run(root, query)
    if as_json:
        emit({"columns": rows.columns, "rows": [list(row) for row in rows.rows()], "row_count": rows.height})
        return
    _show(rows.head(limit))
    if rows.height > limit:
        say(f"{rows.height} rows, {limit} shown; --limit shows more")


def _show(rows: pl.DataFrame) -> None:
    """The rows as a table on stdout."""
    import polars as pl

    with pl.Config(
        tbl_rows=-1, tbl_cols=-1, tbl_width_chars=1000, fmt_str_lengths=80, tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True, tbl_formatting="ASCII_MARKDOWN",
    ):  # fmt: skip
        sys.stdout.write(f"{rows}\n")
