"""The nightly report: one HTML page that needs no other file, with sentences, the table, the gates and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import PurePath
from typing import Any

from pipelines.night.honesty import Predictions
from pipelines.report.explained import explained_html
from pipelines.report.figures import figures_of, png_base64
from pipelines.report.html import html_table
from pipelines.report.predicted import predicted_html
from pipelines.report.table import arms_of, columns, footnote

CAPTIONS = {
    "outcome_by_family": "What each policy served within its targets, and by how much it differs from what runs now.",
    "goodput_by_load": "How goodput falls as the same traffic comes faster.",
    "length_reliability": "Whether as many answers are within a predicted length as its level says.",
    "step_residuals": "How far predicted step times are off, by load. Each dot is a cell of node, size and context.",
}
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;color:#1d2733;max-width:72rem;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;font-size:13px}"
    "th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #dde3e8;vertical-align:top}"
    "th:first-child,td:first-child,.text td,.text th{text-align:left}tr.winner{font-weight:600}"
    ".pass{color:#1a7f5a}.fail{color:#b5402f}.not_run,.waived{color:#8a6d1d}img{max-width:100%}"
    ".pair{display:flex;flex-wrap:wrap;gap:1rem;align-items:flex-start}"
    ".pair img{flex:1 1 22rem;min-width:0;max-width:32rem}"
    "figcaption,.small{color:#5a6875;font-size:13px}code{font-size:13px}"
)


@dataclass(frozen=True, slots=True)
class NightPage:
    """What a page tells, in the plain form in which the stages store it.

    `predicted`: the estimators in force on the day. `diagnosis`: the stored asset of that name. `inputs`, `fitted`:
    None where the night did not come that far.
    `publication`: {path, content_hash, signed, moved}.
    """

    pool: str
    day: str
    evidence: Mapping[str, Any]
    reasons: Sequence[str]
    notes: Sequence[str]
    publication: Mapping[str, Any]
    ingested: Sequence[Mapping[str, Any]] = ()
    diagnosis: Mapping[str, Any] | None = None
    inputs: Mapping[str, Any] | None = None
    fitted: Mapping[str, Any] | None = None
    predicted: Predictions | None = None
    links: Mapping[str, str] = field(default_factory=dict)


def night_html(page: NightPage) -> str:
    """The page."""
    title = f"{page.pool}, night of {page.day}"
    body = "\n".join(_body(page, title))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def summary_lines(page: NightPage) -> list[str]:
    """The outcome in sentences."""
    cap = page.evidence["promotion_cap"]
    far = {
        "none": "It is not promoted.",
        "shadow": "Promotion ends at shadow.",
        "current": "Its gates allow promotion to current.",
    }
    lines = [f"Verdict: {page.evidence['verdict']}. {far[cap]}", *page.reasons]
    published = page.publication
    if published.get("path") is None:
        lines.append("No policy file was kept.")
    else:
        lines.append("The policy is current." if published.get("moved") else "The policy file is kept as a candidate.")
    return [*lines, *page.notes]


def gates_table(evidence: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """(gate, status, value with its interval against threshold, detail) of every gate."""
    rows = []
    for gate in evidence["details"].get("gates", ()):
        known = gate["value"] is not None and gate["threshold"] is not None
        spread = "" if not gate.get("interval") else " [{:.3g}, {:.3g}]".format(*gate["interval"])
        against = f"{gate['value']:.3g}{spread} / {gate['threshold']:.3g}" if known else ""
        rows.append((gate["name"], gate["status"], against, gate["detail"]))
    return rows


def _body(page: NightPage, title: str) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    yield from (f"<p>{escape(line)}</p>" for line in summary_lines(page))
    if page.evidence["details"].get("arms"):
        yield "<h2>Policies on the validation days</h2>"
        yield _arms(page.evidence)
    gates = gates_table(page.evidence)
    if gates:
        yield "<h2>Gates</h2>"
        rows = [
            (name, f'<span class="{status}">{status}</span>', value, escape(text))
            for name, status, value, text in gates
        ]
        yield html_table(("gate", "status", "value / limit", "detail"), rows, "text")
    yield from _figures(page)
    yield from explained_html(page.evidence)
    yield from predicted_html(page.predicted, page.fitted)
    if page.diagnosis is not None:
        yield from _diagnosis(page.diagnosis)
    if page.ingested:
        yield "<h2>Logs</h2>"
        names = ("format", "files", "read", "accepted", "quarantined", "skipped", "duplicates")
        yield html_table(names, [[escape(_number(report[name])) for name in names] for report in page.ingested])
    if page.inputs is not None:
        yield from _inputs(page.inputs)
    if page.fitted is not None:
        yield "<h2>Training rows</h2>"
        yield html_table(("table", "rows"), [(escape(name), f"{rows:,}") for name, rows in page.fitted["rows"].items()])
    yield from _publication(page)


def _arms(evidence: Mapping[str, Any]) -> str:
    arms = arms_of(evidence)
    shown = columns(arms)
    head = "".join(f"<th>{'<br>'.join(map(escape, column.head))}</th>" for column in shown)
    rows = []
    for arm in arms:
        cells = "".join(f"<td>{'<br>'.join(map(escape, column.cell(arm)))}</td>" for column in shown)
        kind = ' class="winner"' if "winner" in arm["roles"] else ""
        rows.append(f"<tr{kind}>{cells}</tr>")
    note = f'<p class="small">{escape(footnote(evidence))}</p>'
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>{note}"


def _figures(page: NightPage) -> Iterator[str]:
    for name, figure in figures_of(page.fitted, page.evidence).items():
        image = f'<img alt="{name.replace("_", " ")}" src="data:image/png;base64,{png_base64(figure)}">'
        yield f"<figure>{image}<figcaption>{escape(CAPTIONS[name])}</figcaption></figure>"


def _diagnosis(found: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>The pool that day</h2>"
    if "path" not in found:
        yield f"<p>It could not be diagnosed: {escape(found['failed'])}.</p>"
        return
    rows = [[escape(f["name"]), escape(f["subject"]), escape(f["text"])] for f in found["findings"]]
    if rows:
        yield html_table(("finding", "where", "what"), rows, "text")
    yield from (f"<p>{escape(answer['text'])}</p>" for answer in found["answers"])
    name = PurePath(found["path"]).name
    yield f'<p><a href="{escape(name)}">Tables and charts of the diagnosis</a></p>'


def _inputs(inputs: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>History</h2>"
    split = inputs["split"]
    parts = (
        f"{part}: {', '.join(w['day'] for w in split[part]) or 'none'}" for part in ("train", "validation", "test")
    )
    yield f"<p>{escape('; '.join(parts))}. The logs reach the level “{escape(inputs['capability']['level'])}”.</p>"


def _publication(page: NightPage) -> Iterator[str]:
    yield "<h2>Files</h2>"
    shown = {name: page.publication.get(name) for name in ("path", "content_hash")} | dict(page.links)
    rows = [(escape(name), f"<code>{escape(str(value))}</code>") for name, value in shown.items() if value]
    yield html_table(("what", "where"), rows, "text") if rows else "<p>None.</p>"


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
