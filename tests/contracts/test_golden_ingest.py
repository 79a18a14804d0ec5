"""Small logs of every format and the whole tables that they become. `make golden-update` writes what is new."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from features.ingest import ingest
from features.lake import Lake
from features.schemas import TABLES
from tests.features.logs import NAME_KEY, START_US

GOLDEN = Path(__file__).parent.parent / "golden" / "ingest"
EXPECTED = "expected.json"
FORMATS = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


def became(name: str, lake: Path) -> dict[str, Any]:
    """The report, and every table that the folder's logs fill, without columns that are null in all rows."""
    logs = sorted(path for path in (GOLDEN / name).iterdir() if path.name != EXPECTED)
    report = ingest(logs, format=name, pool="a", lake=Lake(lake), starts_at_us=START_US, name_key=NAME_KEY)
    held = {}
    for table in TABLES:
        rows = Lake(lake).scan(table, Lake(lake).days(table, "a"), "a").collect()
        if rows.height:
            known = [column for column in rows.columns if rows[column].null_count() < rows.height]
            held[table] = json.loads(rows.select(known).write_json())
    counts = ("read", "accepted", "quarantined", "duplicates", "rules", "skipped_kinds", "derived", "derived_rules")
    return {"report": {key: report.to_dict()[key] for key in counts}, "tables": held}


@pytest.mark.parametrize("name", FORMATS)
def test_golden_tables_of_a_format(name: str, tmp_path: Path) -> None:
    found = became(name, tmp_path / "lake")
    path = GOLDEN / name / EXPECTED
    if os.environ.get("ROUTECAL_GOLDEN_UPDATE"):
        path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    assert json.loads(path.read_text("utf-8")) == found
