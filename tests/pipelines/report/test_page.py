"""The nightly page and its figures: whole, by itself, the same from the same values."""

from __future__ import annotations

import re
from dataclasses import replace

from pipelines.report.figures import figures_of, png
from pipelines.report.page import NightPage, night_html, summary_lines
from tests.pipelines.report.values import evidence, fitted

PAGE = NightPage(
    pool="chat",
    day="2026-11-04",
    evidence=evidence(),
    reasons=("On the validation days goodput is higher than the incumbent's.",),
    notes=("The file is unsigned: the settings name no private key.",),
    publication={"path": "store/chat/versions/x.json", "content_hash": "sha256:00", "moved": False},
    ingested=[
        {
            "format": "routecal-requests",
            "files": 1,
            "read": 1200,
            "accepted": 1190,
            "quarantined": 10,
            "skipped": 0,
            "duplicates": 0,
        }
    ],
    inputs={
        "split": {
            "train": [{"day": "2026-11-01"}],
            "validation": [{"day": "2026-11-03"}],
            "test": [{"day": "2026-11-04"}],
        },
        "capability": {"level": "router family"},
    },
    fitted=fitted(),
    links={"MLflow run": "abc<&"},
)


def test_figures_are_the_same_bytes_again() -> None:
    first, second = (figures_of(fitted(), evidence()) for _ in range(2))
    assert list(first) == ["length_reliability", "step_residuals", "outcome_by_family", "goodput_by_load"]
    for name, figure in first.items():
        made = png(figure)
        assert made.startswith(b"\x89PNG")
        assert made == png(second[name])


def test_a_page_needs_no_other_file() -> None:
    text = night_html(PAGE)
    assert len(re.findall(r'<img alt="[a-z ]+" src="data:image/png;base64,', text)) == 8
    assert "http" not in text
    assert "<script" not in text
    assert text == night_html(PAGE)


def test_a_page_says_what_happened() -> None:
    text = re.sub(r"<[^>]+>", " ", night_html(PAGE))
    for words in (
        "Verdict: better. Promotion ends at shadow.",
        "The policy file is kept as a candidate.",
        "The file is unsigned",
        "waived by settings",
        "0.6 [0.2, 0.95] / 1",
        "validation: 2026-11-03",
        "1,190",
        "3,759",
        "abc&lt;&amp;",
    ):
        assert words in text


def test_a_page_of_a_night_without_a_policy() -> None:
    nothing = {"verdict": "not trustworthy", "promotion_cap": "none", "reason": "One day.", "details": {}}
    page = replace(PAGE, evidence=nothing, reasons=("One day.",), publication={"path": None}, fitted=None, inputs=None)
    assert summary_lines(page)[:3] == [
        "Verdict: not trustworthy. It is not promoted.", "One day.", "No policy file was kept.",
    ]  # fmt: skip
    assert "<img" not in night_html(page)
