"""Every rule that a row can break has a reason that people can read."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from features.firewall import judges  # noqa: F401  its rules add their reasons
from features.quality import REASONS, reason_of
from features.schemas import TABLES

READERS = Path(__file__).parents[2] / "features" / "readers"


@pytest.mark.parametrize("table", sorted(TABLES))
def test_rules_of_columns_and_tables_have_reasons(table: str) -> None:
    schema = TABLES[table].schema
    for name, column in schema.columns().items():
        for rule in column.validation_rules(pl.col(name)):
            assert rule in REASONS, f"{name}|{rule}"
            assert reason_of(f"{name}|{rule}") == f"`{name}`: {REASONS[rule]}"
    for name, rule in vars(schema).items():
        if hasattr(rule, "validation_fn"):
            assert reason_of(name).startswith("must hold: "), name


def test_rules_of_readers_have_reasons() -> None:
    text = "".join(path.read_text("utf-8") for path in sorted(READERS.glob("*.py")))
    named = set(re.findall(r"BadLine\([^)\n]*?\"(?:[a-z_.]+\|)?([a-z_]+)\"", text))
    named |= set(re.findall(r"None, \"([a-z_]+)\"", text))
    assert {"json", "json_object", "file_cut_short", "type", "csv_fields"} <= named
    assert {name for name in named if name not in REASONS} == set()
