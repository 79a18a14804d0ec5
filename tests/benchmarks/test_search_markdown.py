"""Tables of results say what the benchmark's JSON says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.search import __main__ as command
from benchmarks.search.contest import GRID
from benchmarks.search.markdown import main_table, markdown, rivals_table, sweep_table


def row(arm: str, goodput: float, lead: tuple[float, float, float], **other: object) -> dict[str, object]:
    return {
        "arm": arm,
        "goodput_frac": goodput,
        "ttft_ms": [1234.5, 30_000.0],
        "tpot_ms": [12.34, 27.0],
        "reused_tokens": 12_340_000,
        "load": 1.234,
        "curve": [[1.0, 0.95], [1.3, 0.8]],
        "grid": [[load, goodput] for load in GRID],
        "to_simple": dict(zip(("value", "low", "high"), lead, strict=True)),
        **other,
    }


TABLE = {
    "what": "two nodes",
    "load": 1.5,
    "best_simple": "lmetric/decode_first",
    "winner": "searched",
    "verdict": "better",
    "reason": "it leads",
    "rows": [
        row("incumbent", 0.97, (0.0, 0.0, 0.0)),
        row("lmetric/decode_first", 0.9, (0.0, 0.0, 0.0), curve=[[1.0, 0.95], [2.0, 0.95]], load=2.0),
        row("searched", 0.9512, (0.0512, 0.04, 0.06)),
        row("lmetric", 0.0, (-0.9, -0.91, -0.89), curve=[[0.6, 0.0]], load=0.6, ttft_ms=[2e6, 3e6], grid=[]),
    ],
}


def test_the_main_table_has_every_arm_but_the_incumbent_the_best_first():
    assert main_table(TABLE).splitlines()[2:] == [
        "| searched (routecal) * | 95.12 | 1.23 | 1,234 / 30,000 | 12.3 / 27.0 | 12.3 | +5.12 [+4.00, +6.00] |",
        "| lmetric /decode_first | 90.00 | > 2.00 | 1,234 / 30,000 | 12.3 / 27.0 | 12.3 | – |",
        "| lmetric | 0.00 | < 0.60 | over 30 min | – | 12.3 | -90.00 [-91.00, -89.00] |",
    ]


def test_the_sweep_has_the_arms_that_were_asked_at_every_load_and_half_of_their_intervals():
    lines = sweep_table(TABLE).splitlines()
    assert lines[0].split(" | ")[1:-2] == [f"{load:.1f}" for load in GRID]
    assert lines[2] == f"| searched (routecal) * |{' 95.1 |' * len(GRID)} 1.23 | 1.00 |"
    assert lines[3].endswith("| > 2.00 | – |")
    assert len(lines) == 4


def test_ways_to_search_stand_beside_each_other_with_the_spread_of_their_seeds():
    lead = {"value": -0.01, "low": -0.02, "high": 0.001}
    none = dict.fromkeys(lead, 0.0)
    found = {
        "a": [
            {"way": "default", "goodput_frac": [0.9, 0.9], "to_chosen": lead},
            {"way": "routecal", "goodput_frac": [0.9, 0.92], "to_chosen": none},
        ],
        "b": [{"way": "routecal", "goodput_frac": [0.5, 0.5], "to_chosen": none}],
    }
    assert rivals_table(found).splitlines()[2:] == [
        "| default | 90.00; -1.00 [-2.00, +0.10] | – |",
        "| routecal | 91.00 (90.00–92.00) | 50.00 |",
    ]


def test_the_command_prints_what_earlier_runs_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    found = {"tables": {"two": TABLE}}
    (tmp_path / "run.json").write_text(json.dumps(found))
    monkeypatch.setattr("sys.argv", ["benchmarks.search", "--markdown", str(tmp_path / "run.json")])
    assert command.main() == 0
    printed = capsys.readouterr().out
    assert printed == markdown(found) + "\n"
    assert "### `two`: two nodes\n\n**better**, load × 1.5: it leads\n" in printed
