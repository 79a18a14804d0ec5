"""The page's section on estimators: what those in force predicted against what happened, and what was refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from models.honesty.reading import ALL, Reading, percent
from pipelines.night.honesty import Predictions
from pipelines.report.estimator_figures import estimator_figures
from pipelines.report.figures import png_base64
from pipelines.report.html import html_table

HEAD = ("estimator", "where", "measure", "value", "95 % interval", "to be within", "rows", "alarm")
CAPTIONS = {
    "reliability": "Whether as many answers were within a predicted length as its level says, on the night's day.",
    "coverage_over_time": "Whether that held all day.",
    "errors_against_load": "How far predicted times were off, by load, with 95 % intervals.",
}


def predicted_html(predicted: Predictions | None, fitted: Mapping[str, Any] | None) -> Iterator[str]:
    """The section; nothing where neither is known."""
    if predicted is None and fitted is None:
        return
    yield "<h2>Estimators against what happened</h2>"
    if predicted is None or not predicted.readings:
        yield "<p>No estimators were in force on the day, or its logs do not let them be compared.</p>"
    else:
        yield f"<p>{escape(_told(predicted))}</p>"
        barred = [r for r in predicted.readings if r.alarm or (r.bar is not None and "@" not in r.group)]
        first = [r for r in barred if r.alarm or r.group == ALL]
        yield html_table(HEAD, [_row(r) for r in sorted(first, key=lambda r: r.alarm is None)], "text")
        others = [_row(r) for r in barred if r not in first]
        if others:
            yield f"<details><summary>{len(others)} readings of groups within their bars</summary>"
            yield html_table(HEAD, others, "text")
            yield "</details>"
        for name, figure in estimator_figures(predicted.readings).items():
            image = f'<img alt="{name.replace("_", " ")}" src="data:image/png;base64,{png_base64(figure)}">'
            yield f"<figure>{image}<figcaption>{escape(CAPTIONS[name])}</figcaption></figure>"
    for gate in (fitted or {}).get("origin", {}).values():
        if not gate["accepted"]:
            yield f'<p class="fail">{escape(gate["reason"])}</p>'


def _told(predicted: Predictions) -> str:
    count = len(predicted.alarms)
    many = "no alarm" if not count else f"{count} alarm{'s' if count > 1 else ''}"
    return f"In force on the day: {predicted.source}; {many}."


def _row(r: Reading) -> list[str]:
    def shown(value: float) -> str:
        return percent(value) if r.measure.endswith("_error") else f"{value:.3f}"

    interval = "" if r.low is None or r.high is None else f"{shown(r.low)} to {shown(r.high)}"
    bar = ""
    if r.bar is not None and r.expected is not None:
        bar = f"\u00b1 {100 * r.bar:g} %" if r.measure.endswith("_error") else f"{r.expected:g} \u00b1 {r.bar:g}"
    alarm = f'<span class="fail">{escape(r.alarm)}</span>' if r.alarm else ""
    where = "all" if r.group == ALL else r.group
    cells = (r.estimator, where, r.measure.replace("_", " "), shown(r.value), interval, bar, f"{r.rows:,}")
    return [*(escape(cell) for cell in cells), alarm]
