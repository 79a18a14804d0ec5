"""Names of logs in what a diagnosis shows: as they are, and without power over page, chart or terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from features.diagnosis.diagnose import Diagnosis
from pipelines.console import say
from pipelines.report.diagnosis_figures import diagnosis_figures
from pipelines.report.diagnosis_page import cell_text, terminal_tables
from pipelines.report.figures import png
from tests.features.diagnosis.tiny import DAY, POOL

NAMES = (
    "[/red]d0",
    "[bold]d1[/bold]",
    "d$\\frac{$",
    "d\t\x1b[31m\n",
    "d\U0001f600",
    "d" * 300,
    "'; DROP TABLE requests; --",
)


def stage(dimension: str, value: str, name: str) -> dict[str, object]:
    times = {"mean_ms": 1.0, "p50_ms": 1.0, "p95_ms": 1.0, "p99_ms": 2.0, "share_frac": 1.0}
    return {"dimension": dimension, "value": value, "stage": name, "requests": 12_345, "known": 12_345, **times}


def diagnosis() -> Diagnosis:
    dimensions = ("all", "slo_class", "prompt_bucket", "prefill_node", "decode_node")
    rows = [stage(of, value, name) for of in dimensions for value in NAMES for name in ("ttft", "queue")]
    windows = [
        {"role": "decode", "metric": "running_tokens", "node": node, "window_us": at, "value": 1.0}
        for node in NAMES
        for at in (0, 60_000_000)
    ]
    return Diagnosis(POOL, DAY, (), (), {"ttft_stages": rows, "windows": windows}, ())


def test_tables_show_names_as_they_are() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    for table in terminal_tables(diagnosis()):
        console.print(table)
    shown = console.export_text()
    assert "[/red]d0" in shown
    assert "[bold]d1[/bold]" in shown
    assert "\x1b" not in shown


def test_short_names_of_classes_and_dimensions_stay_whole() -> None:
    of = {"ttft_stages": [stage("prompt_bucket", "long_context", name) for name in ("ttft", "queue", "transfer")]}
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(terminal_tables(Diagnosis(POOL, DAY, (), (), of, ()))[0])
    shown = console.export_text()
    assert "prompt_bucket" in shown
    assert "long_context" in shown
    assert "12,345" in shown


def test_charts_can_be_drawn_of_any_name() -> None:
    figures = diagnosis_figures(diagnosis().tables)
    assert set(figures) == {"ttft_by_class", "ttft_by_node", "load_over_time"}
    for figure in figures.values():
        assert png(figure).startswith(b"\x89PNG")


def test_what_is_said_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("slow: d\x1b[31m\r0\n  next é 12 µs")
    assert capsys.readouterr().err == "slow: d\ufffd[31m\ufffd0\n  next é 12 µs\n"


def test_counts_have_groups_of_digits() -> None:
    assert cell_text(643_674_069) == "643,674,069"
    assert cell_text(True) == "True"
