"""The diagnosis as one HTML page that needs no other file, as Markdown, and as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from features.diagnosis.answers import STAGES
from pipelines.console import plain
from pipelines.report.diagnosis_figures import CAPTIONS, diagnosis_figures
from pipelines.report.figures import png_base64
from pipelines.report.html import html_table
from pipelines.report.page import STYLE

if TYPE_CHECKING:
    from rich.table import Table

    from features.diagnosis.diagnose import Diagnosis

SHOWN = (
    ("prefill_nodes", "P nodes"),
    ("decode_nodes", "D nodes"),
    ("imbalance", "Imbalance over time"),
    ("repeats", "Consecutive decisions"),
    ("agreement", "Routers that choose alike"),
    ("links", "Links"),
    ("prefill_speed", "Speed of the Ps"),
    ("decode_speed", "Speed of the Ds"),
    ("slo", "Targets met"),
    ("prefix", "Prefix hits"),
    ("prefix_loss", "Lost prefix hits"),
)
"""Tables of the page, with their titles."""
_MANY_ROWS = 40
_NAME_WIDTH = 16


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """The page."""
    title = f"{diagnosis.pool}, diagnosis of {diagnosis.day.isoformat()}"
    body = "\n".join(_body(diagnosis, title))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def diagnosis_markdown(diagnosis: Diagnosis) -> str:
    """Findings and answers, as Dagster shows them."""
    lines = [f"**{finding.name}** ({finding.subject}): {finding.text}" for finding in diagnosis.findings]
    return "\n\n".join([*lines, *(answer.text for answer in diagnosis.answers), *diagnosis.sampled])


def _body(diagnosis: Diagnosis, title: str) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    yield f"<p><b>{escape(diagnosis.answers[-1].text)}</b></p>"
    if diagnosis.findings:
        yield "<h2>Findings</h2>"
        rows = [[escape(f.name), escape(f.severity), escape(f.subject), escape(f.text)] for f in diagnosis.findings]
        yield html_table(("finding", "severity", "where", "what"), rows, "text")
    yield "<h2>Answers</h2>"
    answers = [[escape(a.question.replace("_", " ")), escape(a.verdict), escape(a.text)] for a in diagnosis.answers]
    yield html_table(("about", "verdict", "why"), answers, "text")
    yield from (f'<p class="small">{escape(line)}</p>' for line in diagnosis.sampled)
    for name, figure in diagnosis_figures(diagnosis.tables).items():
        image = f'<img alt="{name.replace("_", " ")}" src="data:image/png;base64,{png_base64(figure)}">'
        yield f"<figure>{image}<figcaption>{escape(CAPTIONS[name])}</figcaption></figure>"
    head, stages = stage_rows(diagnosis.tables)
    if stages:
        yield "<h2>TTFT by stage</h2>"
        yield html_table(head, [[escape(cell) for cell in row] for row in stages])
    for name, heading in SHOWN:
        table = diagnosis.tables.get(name)
        if table:
            yield f"<h2>{heading}</h2>"
            yield html_table(
                [column.replace("_", " ") for column in table[0]],
                [[escape(cell_text(value)) for value in row.values()] for row in table[:_MANY_ROWS]],
            )
            if len(table) > _MANY_ROWS:
                yield f'<p class="small">{len(table) - _MANY_ROWS} more rows: routecal diagnose --json has them.</p>'


def stage_rows(tables: Mapping[str, Any], dimensions: tuple[str, ...] = ()) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the split: mean ms a stage, one row a value of a dimension; `?` = unknown."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in tables.get("ttft_stages", ()):
        if not dimensions or row["dimension"] in dimensions:
            found.setdefault((row["dimension"], row["value"]), {})[row["stage"]] = row
    head = ["by", "value", "requests", "TTFT ms", "P99", *STAGES.values()]
    rows = []
    for (dimension, value), stages in found.items():
        total = stages["ttft"]
        cells = [cell_text(stages[name]["mean_ms"]) if name in stages else "?" for name in STAGES]
        first = [
            dimension,
            value,
            cell_text(total["requests"]),
            cell_text(total["mean_ms"]),
            cell_text(total["p99_ms"]),
        ]
        rows.append([*first, *cells])
    return head, rows


def terminal_tables(diagnosis: Diagnosis) -> list[Table]:
    """What a terminal shows: the split, P nodes, D nodes, links."""
    head, stages = stage_rows(diagnosis.tables, ("all", "slo_class", "prompt_bucket"))
    made = [_rich("TTFT by stage, ms", head, stages)] if stages else []
    picked = {
        "prefill_nodes": ("node", "requests", "busy_frac", "queue_mean_ms", "awaiting_frac", "awaiting_kv_frac"),
        "decode_nodes": ("node", "requests", "committed_mean_frac", "above_frac", "reservation_mean_ms", "preemptions"),
        "links": ("kind", "name", "transfers", "mean_ms", "flows_mean", "busy_frac", "line_use_frac"),
    }
    for name, columns in picked.items():
        rows = [row for row in diagnosis.tables.get(name, ()) if row.get("kind") != "pair"]
        cells = [[cell_text(row[column]) for column in columns] for row in rows]
        if cells:
            made.append(_rich(dict(SHOWN)[name], [column.replace("_", " ") for column in columns], cells))
    return made


def cell_text(value: object) -> str:
    """A value as a table shows it; unknown is `?`."""
    if value is None:
        return "?"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(f"{item:.2f}" if isinstance(item, float) else str(item) for item in value)
    return str(value)


def _rich(title: str, head: list[str], rows: list[list[str]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, title=title, title_justify="left")
    for at, name in enumerate(head):
        # Names stay whole as long as they are short: the numbers' heads can be broken, names cannot.
        longest = max((len(row[at]) for row in rows), default=0)
        table.add_column(name, justify="left" if at < 2 else "right", min_width=min(longest, _NAME_WIDTH))
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))  # as it is: a name may look like markup
    return table
