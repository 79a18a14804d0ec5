"""Figures that explain a winner: the ladder, what it lives on, which prompts cross racks, and the fronts of the search.

Differences keep the sign of the tables beside them: below 0 is a loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.report.figures import BAD, FAINT, GOOD, PLAIN, canvas
from policies.search.plan import CLASSES, MORE, SHARED, WIDER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 12
"""Changes of the ablation, those that move goodput most."""
SEARCHED = {SHARED: PLAIN, WIDER: PLAIN, MORE: PLAIN, CLASSES: GOOD}
"""Searches of the joint score; they stand out from those of the families."""
WIDTH = 4.6
"""Inches: small enough that a figure beside its table is seen at about its own size."""
NEAR = 0.1
"""Goodput below the best front within which fronts are drawn."""
WIDE = 5.0


def explained_figures(evidence: Mapping[str, Any]) -> dict[str, Figure]:
    """Name -> figure, of those that the evidence allows; none of evidence without explanation and searches."""
    details = evidence["details"]
    found = details.get("explanation") or {}
    made = {
        "ladder": ladder(found.get("ladder") or ()),
        "ablation": ablation(found.get("ablation") or ()),
        "crossings": crossings(found.get("flows") or (), details),
        "fronts": fronts(details.get("search", {}).get("searches", {})),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def ladder(rungs: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Goodput of every rung, the lowest below, and its gain on the rung below it with the interval."""
    if not rungs:
        return None
    figure, (left, right) = canvas(2, width=WIDTH, height=1.0 + 0.26 * len(rungs))
    goodput = [100 * rung["goodput_frac"] for rung in rungs]
    left.plot(goodput, range(len(rungs)), "o-", color=PLAIN, linewidth=1, markersize=4)
    right.axvline(0, color=FAINT, linewidth=1)
    for at, rung in enumerate(rungs):
        if rung["gain"] is not None:
            value, low, high = (100 * rung["gain"][key] for key in ("value", "low", "high"))
            right.plot([low, high], [at, at], color=_colour(rung["gain"]), linewidth=2)
            right.plot([value], [at], "o", color=_colour(rung["gain"]), markersize=4)
    _named(left, [rung["name"] for rung in rungs])
    _told(left, x="goodput, %")
    _told(right, x="gain on the rung below, points")
    right.set(yticks=[], ylim=left.get_ylim())
    return figure


def strongest(effects: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The `SHOWN` changes that move goodput most, the greatest loss first; table and figure show the same."""
    most = sorted(effects, key=lambda e: -abs(e["difference"]["value"]))[:SHOWN]
    return sorted(most, key=lambda e: e["difference"]["value"])


def ablation(effects: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Points of goodput that each change costs, the greatest loss on top, with intervals."""
    if not effects:
        return None
    shown = strongest(effects)[::-1]
    figure, (axes,) = canvas(1, width=WIDTH, height=0.9 + 0.24 * len(shown))
    axes.axvline(0, color=FAINT, linewidth=1)
    for at, effect in enumerate(shown):
        value, low, high = (100 * effect["difference"][key] for key in ("value", "low", "high"))
        # A change that gains is coloured as one that loses: both say that the term is not at its best alone.
        colour = BAD if high < 0 else GOOD if low > 0 else FAINT
        axes.barh([at], [value], color=colour, height=0.6, alpha=0.6)
        axes.plot([low, high], [at, at], color=PLAIN, linewidth=1)
    kinds = {"off": "off", "default": "at default"}
    _named(axes, [f"{e['name']} {kinds.get(e['kind'], e['kind'])}" for e in shown])
    _told(axes, "One thing of the winner changed", "points of goodput against the winner")
    return figure


def crossings(flows: Sequence[Mapping[str, Any]], details: Mapping[str, Any]) -> Figure | None:
    """Share of prompts whose P and D are in two racks, by prompt size; None where no prompt of any arm crosses."""
    if not any(flow["crossed_frac"] for flow in flows):
        return None
    sizes = [c["prompt_tokens"] for c in flows[0]["crossings"]]
    there = [at for at in range(len(sizes)) if any(flow["crossings"][at]["requests"] for flow in flows)]
    figure, (axes,) = canvas(1, width=WIDTH, height=2.9)
    colours = {details["default"]: FAINT, details["incumbent"]: PLAIN, details["winner"]: GOOD}
    width = 0.8 / len(flows)
    for place, flow in enumerate(flows):
        shares = [flow["crossings"][at]["crossed_frac"] for at in there]
        at = [k + (place - (len(flows) - 1) / 2) * width for k in range(len(there))]
        heights = [0.0 if share is None else 100 * share for share in shares]
        axes.bar(at, heights, width=width, color=colours.get(flow["arm"], FAINT), label=_roles(flow["arm"], details))
    axes.set_xticks(range(len(there)), [sizes[at] for at in there])
    _told(axes, "Prompts across racks", "prompt tokens", "% of them")
    axes.legend(frameon=False, fontsize=7)
    return figure


def fronts(searches: Mapping[str, Mapping[str, Any]]) -> Figure | None:
    """Goodput against P99 TTFT on the train days: the front of every search, and the trial that it chose if there.

    Searches that end far below the best are counted only: drawn, they would press all others into one line.
    """
    held = {name: report["front"] for name, report in searches.items() if report.get("front")}
    if not any(len(points) > 1 for points in held.values()):
        return None
    most = max(p["goodput_frac"] for points in held.values() for p in points)
    near = {name: [p for p in points if p["goodput_frac"] >= most - NEAR] for name, points in held.items()}
    shown = {name: points for name, points in near.items() if points}
    figure, (axes,) = canvas(1, width=WIDTH, height=3.6)
    best = {name: max(p["goodput_frac"] for p in points) for name, points in shown.items()}
    families = sorted((name for name in shown if name not in SEARCHED), key=lambda name: -best[name])
    palette = dict(zip(families, ("#c08a1e", "#7a5ba6", "#2d8bba"), strict=False))
    for name in [*reversed(families), *(name for name in SEARCHED if name in shown)]:
        points = sorted(shown[name], key=lambda p: p["ttft_p99_ms"])
        colour = SEARCHED.get(name) or palette.get(name, FAINT)
        label = name if name in SEARCHED or name in palette else None
        xs, ys = [p["ttft_p99_ms"] / 1e3 for p in points], [100 * p["goodput_frac"] for p in points]
        axes.plot(xs, ys, ".", color=colour, markersize=5, alpha=0.8, label=label)
        for point in points:
            if point["trial"] == searches[name]["chosen_trial"]:
                x, y = point["ttft_p99_ms"] / 1e3, 100 * point["goodput_frac"]
                axes.plot([x], [y], "*", color=colour, markeredgecolor="black", markeredgewidth=0.6, markersize=10)
    _scaled(axes, [p["ttft_p99_ms"] for points in shown.values() for p in points])
    _told(axes, "Fronts of the searches, train days", "P99 TTFT, s", "goodput, %")
    if len(shown) < len(held):
        note = f"{len(held) - len(shown)} more searches end over {100 * NEAR:.0f} points below the best"
        axes.annotate(note, (0.0, -0.22), xycoords="axes fraction", fontsize=7, color=PLAIN)
    axes.legend(frameon=False, fontsize=7)
    return figure


def _colour(difference: Mapping[str, Any]) -> str:
    return GOOD if difference["low"] > 0 else BAD if difference["high"] < 0 else FAINT


def _named(axes: Axes, names: Sequence[str]) -> None:
    """Names instead of numbers at the rows."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="x", color="#e6ebef")
    axes.set_axisbelow(True)


def _told(axes: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Words of a small figure."""
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)


def _scaled(axes: Axes, values: Sequence[float]) -> None:
    """A logarithmic axis where values are far apart; marks at 1, 2, 5 need that to be seen."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    if min(values) > 0 and max(values) > WIDE * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())


def _roles(arm: str, details: Mapping[str, Any]) -> str:
    roles = [role for role in ("winner", "incumbent", "default") if details[role] == arm and role != arm]
    return f"{arm} ({', '.join(roles)})" if roles else arm
