"""Why the winner wins and where it does not, as short tables: `details.explanation` of the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from pipelines.report.explained_figures import SHOWN, explained_figures, strongest
from pipelines.report.figures import png_base64
from pipelines.report.html import html_table
from pipelines.report.table import UNKNOWN, interval_text

KINDS = {"off": "off", "default": "back to the default", "half": "halved", "double": "doubled"}

LADDER = ("rung", "terms", "goodput, %", "gain, points")

Rows = list[tuple[str, ...]]


def explained_html(evidence: Mapping[str, Any]) -> Iterator[str]:
    """The sections; nothing for evidence that explains nothing and searched nothing, as that of older files."""
    drawn = {name: png_base64(figure) for name, figure in explained_figures(evidence).items()}
    yield from _explanation(evidence["details"].get("explanation"), drawn)
    searches = evidence["details"].get("search", {}).get("searches")
    if searches:
        yield "<h2>The searches</h2>"
        head = ("search", "trials", "given up", "ended by", "start, %", "best, %", "chosen, %")
        yield _beside(_table(head, search_rows(searches)), drawn.get("fronts"), "fronts of the searches")
        yield _small(
            "Softened goodput of the train days. In the figure: trials that no other one of their search beats in "
            "goodput, P99 TTFT and bytes at once, near the best; a star is the chosen trial where it is one of them."
        )


def _explanation(found: Mapping[str, Any] | None, drawn: Mapping[str, str]) -> Iterator[str]:
    if not found:
        return
    if found.get("ladder"):
        yield "<h2>The ladder</h2>"
        table = _table(LADDER, ladder_rows(found))
        yield _beside(table, drawn.get("ladder"), "goodput by rung")
        yield _small(
            "The joint score's weights, a part of its terms at a time; P and D are chosen apart below the last rung."
        )
    yield "<h2>What the winner lives on</h2>"
    if found["ablation"]:
        table = _table(("term or knob", "change", "from", "to", "goodput, points"), ablation_rows(found))
        yield _beside(table, drawn.get("ablation"), "one thing of the winner changed")
        left = len(found["ablation"]) - SHOWN
        more = f" {left} more changes move it less." if left > 0 else ""
        yield _small(f"Goodput less the winner's with one thing changed; below 0 the winner lives on it.{more}")
    else:
        yield "<p>The winner is what the default is, or a rule without weights at its defaults.</p>"
    yield "<h2>Around the winner</h2>"
    if found["sensitivity"]:
        yield _table(("weight", "halved, points", "doubled, points"), sensitivity_rows(found))
        yield _small("Goodput less the winner's with one weight halved or doubled: a plateau or a cliff.")
    yield _table(*load_table(found))
    if found["slices"] is not None:
        yield "<h2>Where it loses and gains against the incumbent</h2>"
        yield _table(("requests", "count", "winner, %", "incumbent, %", "points"), slice_rows(found))
        yield _small(f"The extremes of {found['slices']['looked_at']} slices: places to look at, not findings.")
    yield "<h2>Flows</h2>"
    yield _beside(_table(*flow_table(found)), drawn.get("crossings"), "prompts across racks by size")
    yield _small(
        "Herding: lag-1 autocorrelation of a node's share over blocks of 5 s. Above high water: committed over usable "
        "blocks against the arm's own mark. Another pair: than the incumbent's for the same request."
    )
    yield "<h2>Regret against hindsight</h2>"
    yield _table(("policy", "class", "decisions", "TTFT, ms", "targets missed, %"), regret_rows(found))
    yield _small(
        "Of sampled decisions: mean TTFT over the best pair's; a pair would have met the targets and was left."
    )
    if found["switchback"] is not None:
        yield "<h2>Live test</h2>"
        yield from (f"<p>{escape(line)}</p>" for line in live_test_lines(found["switchback"]))


def ladder_rows(found: Mapping[str, Any]) -> Rows:
    """One row a rung, from the lowest; terms are named where they come in."""
    rows: Rows = []
    known: set[str] = set()
    for rung in found["ladder"]:
        new = [term for term in rung["terms"] if term not in known]
        known |= set(new)
        gain = UNKNOWN if rung["gain"] is None else interval_text(rung["gain"])
        rows.append((rung["name"], ", ".join(new), f"{100 * rung['goodput_frac']:.2f}", gain))
    return rows


def ablation_rows(found: Mapping[str, Any]) -> Rows:
    """The changes that move goodput most, the greatest loss first."""
    return [
        (e["name"], KINDS[e["kind"]], e["before"], e["after"], interval_text(e["difference"]))
        for e in strongest(found["ablation"])
    ]


def sensitivity_rows(found: Mapping[str, Any]) -> Rows:
    """One row a weight."""
    by_kind = {(e["name"], e["kind"]): interval_text(e["difference"]) for e in found["sensitivity"]}
    names = dict.fromkeys(e["name"] for e in found["sensitivity"])
    return [(name, by_kind.get((name, "half"), UNKNOWN), by_kind.get((name, "double"), UNKNOWN)) for name in names]


def load_table(found: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    """Head and rows: goodput of each arm at loads around 1."""
    loads = [load for load, _ in found["loads"][0]["goodput_frac"]]
    head = ("goodput, % at load", *(f"{load:.1f}" for load in loads))
    return head, [(p["arm"], *(f"{100 * value:.2f}" for _, value in p["goodput_frac"])) for p in found["loads"]]


def slice_rows(found: Mapping[str, Any]) -> Rows:
    """Losses, the largest first, then gains, the largest last."""
    slices = [*found["slices"]["losses"], *reversed(found["slices"]["gains"])]
    return [
        (
            s["where"],
            f"{s['requests']:,}",
            f"{100 * s['winner_goodput_frac']:.1f}",
            f"{100 * s['incumbent_goodput_frac']:.1f}",
            f"{100 * s['difference']:+.1f}",
        )
        for s in slices
    ]


def flow_table(found: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    """Head and rows: one column an arm, one row a number; sizes of prompts only where some cross."""
    flows = found["flows"]

    def row(name: str, cells: Sequence[str]) -> tuple[str, ...]:
        return (name, *cells)

    rows = [row("prompts across racks, %", [_percent(f["crossed_frac"]) for f in flows])]
    for at, crossing in enumerate(flows[0]["crossings"]):
        if any(f["crossings"][at]["requests"] for f in flows) and any(f["crossed_frac"] for f in flows):
            cells = [_percent(f["crossings"][at]["crossed_frac"]) for f in flows]
            rows.append(row(f"of {crossing['prompt_tokens']} tokens, %", cells))
    for name, key in (("P", "prefill"), ("D", "decode")):
        rows.append(row(f"share of a {name}, least – most, %", [_span(f[f"{key}_share"]) for f in flows]))
        rows.append(row(f"herding on {name}", [_signed(f[f"{key}_autocorrelation"]) for f in flows]))
    rows += [
        row("D-time above high water, %", [_percent(f["above_high_water_frac"]) for f in flows]),
        row("requests with another pair, %", [_percent(f["flips_frac"]) for f in flows]),
        row("reused tokens", [f"{f['reused_tokens']:,}" for f in flows]),
        row("moved, GB", [f"{f['transferred_bytes'] / 1e9:,.1f}" for f in flows]),
    ]
    return ("", *(f["arm"] for f in flows)), rows


def regret_rows(found: Mapping[str, Any]) -> Rows:
    """One row an arm and class that has decisions."""
    return [
        (r["arm"], r["slo_class"], f"{r['decisions']:,}", f"{1e3 * r['ttft_s']:,.1f}", _percent(r["missed_frac"]))
        for r in found["regret"]
        if r["decisions"]
    ]


def search_rows(searches: Mapping[str, Mapping[str, Any]]) -> Rows:
    """One row a search, the best first."""
    keys = ("default_soft_frac", "best_soft_frac", "chosen_soft_frac")
    return [
        (name, f"{s['trials']:,}", f"{s['given_up']:,}", str(s["stopped"]), *(f"{100 * s[key]:.2f}" for key in keys))
        for name, s in sorted(searches.items(), key=lambda item: (-item[1]["best_soft_frac"], item[0]))
    ]


def live_test_lines(plan: Mapping[str, Any]) -> list[str]:
    """The switchback plan in sentences."""
    wash_in, relaxation = f"{plan['wash_in_s']:.0f} s", f"{plan['relaxation_s']:.1f} s"
    turns = f"Winner and incumbent take turns in blocks of {plan['block_s'] / 60:.0f} min; the first {wash_in} after a "
    lines = [f"{turns}switch are left out (the queue's relaxation time is {relaxation})."]
    chance = (
        f"a gain of {100 * plan['effect']:.2f} points with probability {plan['power']:.0%} at α = {plan['alpha']:g}"
    )
    if plan["blocks"] is None:
        lines.append("The validation days do not say how many blocks it takes.")
    else:
        least = "" if plan["paired_blocks"] is None else f" ({plan['paired_blocks']:,} on equal traffic)"
        lines.append(f"{plan['blocks']:,} blocks{least}, {plan['hours']:.1f} h, find {chance}.")
    if plan["order"]:
        start = plan["order"][:24]
        more = " …" if len(plan["order"]) > len(start) else ""
        lines.append(f"Order, seed {plan['seed']} (w = winner, i = incumbent): {start}{more}")
    return [*lines, plan["assumption"]]


def _table(head: Sequence[str], rows: Rows) -> str:
    return html_table(head, [[escape(cell) for cell in row] for row in rows])


def _beside(table: str, drawn: str | None, alt: str) -> str:
    """A table and its figure side by side, one below the other where the window is narrow."""
    if drawn is None:
        return table
    return f'<div class="pair"><div>{table}</div><img alt="{alt}" src="data:image/png;base64,{drawn}"></div>'


def _small(text: str) -> str:
    return f'<p class="small">{escape(text)}</p>'


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.1f}"


def _signed(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.2f}"


def _span(shares: Mapping[str, float]) -> str:
    return f"{100 * min(shares.values()):.1f} – {100 * max(shares.values()):.1f}"
