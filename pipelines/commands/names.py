"""`routecal names`: whom a hash of the lake stands for."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pipelines.commands.options import AsJson, LakePath, SettingsPath, lake_root, settings_if_any
from pipelines.console import emit, say


def names(
    hashed: Annotated[
        str | None, typer.Argument(metavar="[HASH]", help="A hash of tenant or session_id; without it all.")
    ] = None,
    *,
    lake: LakePath = None,
    settings_path: SettingsPath = None,
    as_json: AsJson = False,
) -> None:
    """Show the tenants and sessions behind hashes. What it prints is meant for the operator of this lake alone."""
    from features.errors import LakeError
    from features.lake import Lake
    from features.privacy import meanings

    root = lake_root(lake, None if lake else settings_if_any(settings_path))
    if not root.is_dir():
        raise LakeError("a lake must exist", place=str(root), hint="routecal ingest makes it")
    found = sorted({row for frame in meanings(Lake(root), hashed) for row in frame.rows()})
    if as_json:
        keys = ("pool", "column", "hash", "name")
        emit({"names": [dict(zip(keys, row, strict=True)) for row in found]})
    else:
        sys.stdout.writelines(f"{pool}  {column}  {digest}  {name}\n" for pool, column, digest, name in found)
    if not found:
        say(f"no log of this lake names a tenant or session{' of that hash' if hashed else ''}")
    if hashed is not None and not found:
        raise typer.Exit(1)
