"""Dagster's code location: everything in pipelines/defs is found by itself."""

from __future__ import annotations

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """All assets, checks, schedules and resources."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
