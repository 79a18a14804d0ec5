"""The benchmark's JSON as the tables of `docs/results.md`: nobody types their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.search.contest import GRID, HARM, LEVEL
from policies.search.candidates import DEFAULT, INCUMBENT, PER_CLASS, SEARCHED

NAMES = {
    DEFAULT: "default (routecal)",
    SEARCHED: "searched (routecal)",
    PER_CLASS: "own weights by class (routecal)",
    HARM: "default + NeighbourHarm 0.03",
}
JAMMED_MS = 1_800_000.0
_MAIN = (
    "policy family",
    "goodput %",
    "load at 90%",
    "TTFT ms P50/P99",
    "TPOT ms P50/P99",
    "reused M tokens",
    "to the best simple rule",
)


def markdown(found: Mapping[str, Any]) -> str:
    """All tables of a run, as it wrote them with `--json`."""
    parts = []
    for name, table in found["tables"].items():
        title = f"### `{name}`: {table['what']}\n\n**{table['verdict']}**, load × {table['load']}: {table['reason']}"
        parts += [title, main_table(table), sweep_table(table)]
    if found.get("rivals"):
        parts.append(rivals_table(found["rivals"]))
    return "\n\n".join(parts) + "\n"


def main_table(table: Mapping[str, Any]) -> str:
    """Every arm but the night's incumbent, which the best simple rule stands for; the best goodput first."""
    rows = sorted((r for r in table["rows"] if r["arm"] != INCUMBENT), key=lambda r: -r["goodput_frac"])
    return _table(_MAIN, [_main_row(row, table) for row in rows])


def _main_row(row: Mapping[str, Any], table: Mapping[str, Any]) -> Sequence[str]:
    lead = row["to_simple"]
    interval = f"{100 * lead['value']:+.2f} [{100 * lead['low']:+.2f}, {100 * lead['high']:+.2f}]"
    (ttft, ttft_tail), (tpot, tpot_tail) = row["ttft_ms"], row["tpot_ms"]
    jammed = ttft > JAMMED_MS
    return (
        _name(row, table),
        f"{100 * row['goodput_frac']:.2f}",
        _carried(row),
        "over 30 min" if jammed else f"{ttft:,.0f} / {ttft_tail:,.0f}",
        "–" if jammed else f"{tpot:.1f} / {tpot_tail:.1f}",
        f"{row['reused_tokens'] / 1e6:,.1f}",
        "–" if row["arm"] == table["best_simple"] else interval,
    )


def sweep_table(table: Mapping[str, Any]) -> str:
    """Goodput in percent at the loads of `GRID`, of the arms that stand for their kind.

    ±: half of the interval of the difference from the best simple rule, in points, at load 1.
    """
    shown = sorted(
        (r for r in table["rows"] if r["grid"] and r["arm"] != INCUMBENT),
        key=lambda r: -dict(map(tuple, r["grid"]))[1.0],
    )
    rows = []
    for row in shown:
        at = dict(map(tuple, row["grid"]))
        lead = row["to_simple"]
        width = "–" if row["arm"] == table["best_simple"] else f"{50 * (lead['high'] - lead['low']):.2f}"
        rows.append((_name(row, table), *(f"{100 * at[load]:.1f}" for load in GRID), _carried(row), width))
    return _table(("goodput % at load", *(f"{load:.1f}" for load in GRID), "load at 90%", "±"), rows)


def rivals_table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A way to search a row, a pool a column: mean over seeds (least to most), and the lead over routecal's choice."""
    ways = list(dict.fromkeys(held["way"] for pool in found.values() for held in pool))
    cells = {(name, held["way"]): _rival(held) for name, pool in found.items() for held in pool}
    rows = [(way, *(cells.get((name, way), "–") for name in found)) for way in ways]
    return _table(("hard goodput % on the test traffic", *(f"`{name}`" for name in found)), rows)


def _rival(held: Mapping[str, Any]) -> str:
    seeds, lead = [100 * frac for frac in held["goodput_frac"]], held["to_chosen"]
    mean = f"{sum(seeds) / len(seeds):.2f}"
    spread = f" ({min(seeds):.2f}–{max(seeds):.2f})" if max(seeds) > min(seeds) else ""
    if lead["low"] == lead["high"] == 0.0:
        return mean + spread
    return f"{mean}{spread}; {100 * lead['value']:+.2f} [{100 * lead['low']:+.2f}, {100 * lead['high']:+.2f}]"


def _name(row: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    family, _, rack = row["arm"].partition("/")
    name = NAMES.get(family, f"{family} /{rack}" if rack else family)
    return f"{name} *" if row["arm"] == table["winner"] else name


def _carried(row: Mapping[str, Any]) -> str:
    """Where the sweep ended before goodput crossed the level, its end is no more than a bound."""
    curve = [tuple(point) for point in row["curve"]]
    if all(goodput < LEVEL for _, goodput in curve):
        return f"< {row['load']:.2f}"
    return f"> {row['load']:.2f}" if all(goodput >= LEVEL for _, goodput in curve) else f"{row['load']:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
