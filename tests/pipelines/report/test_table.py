"""The table of a night: what stands in which cell, on a terminal and in Markdown."""

from __future__ import annotations

import io
import json

import pytest

from features.errors import PolicyError
from pipelines.report.table import WIDTH, arms_markdown, arms_table
from tests.pipelines.report.values import evidence


def rendered() -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=WIDTH).print(arms_table(evidence()))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_best_stands_first_and_the_tested_one_is_marked() -> None:
    lines = rendered()
    starts = [line.split()[0] for line in lines if line.strip()]
    order = [starts.index(name) for name in ("default", "incumbent", "lmetric")]
    assert order == sorted(order)
    assert any("default *" in line for line in lines)
    assert max(map(len, lines)) <= WIDTH


def test_cells_of_a_row() -> None:
    lines = rendered()
    at = next(i for i, line in enumerate(lines) if line.startswith("default"))
    assert lines[at].split() == [
        "default", "*", "91.70", "≥", "1.80", "412", "21.0", "1,204", "3", "41.2", "8.12", "+1.20", "–",
    ]  # fmt: skip
    assert lines[at + 1].split() == ["(routecal)", "1,310", "38.2", "[+0.40,", "+2.10]"]


def test_markdown_has_one_line_a_policy() -> None:
    text = arms_markdown(evidence())
    lines = text.splitlines()
    assert lines[0].startswith("| policy family | goodput % | load at 90% | TTFT ms P50/P99 |")
    assert lines[3] == (
        "| incumbent (gated_utilisation) /prefill_first | 90.50 | 1.01 | 412 / 1,310 | 21.0 / 38.2 | 1,204 | 3 | 41.2 "
        "| 8.12 | – | -1.20 [-2.10, -0.40] |"
    )
    assert lines[4].startswith("| lmetric /decode_first | 87.10 | – | – / – |")
    assert "95 % intervals" in text
    assert "30 s" in text


def test_the_table_comes_out_of_a_stored_file_alike() -> None:
    """Canonical JSON writes 1.0 as 1."""
    stored = json.loads(json.dumps(evidence()).replace("1.0,", "1,"))
    assert arms_markdown(stored) == arms_markdown(evidence())


def test_a_night_without_a_policy_has_no_table() -> None:
    unjudged = {"verdict": "not trustworthy", "promotion_cap": "none", "reason": "One day.", "details": {}}
    with pytest.raises(PolicyError, match=r"table needs evidence.*One day"):
        arms_table(unjudged)


def test_nothing_is_cut_at_the_tables_width() -> None:
    assert "…" not in "".join(rendered()).replace("2026-11-03 … ", "")
