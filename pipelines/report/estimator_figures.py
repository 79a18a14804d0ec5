"""Predictions against what happened: reliability, coverage over time, errors against load. Made from readings alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from models.honesty.reading import ALL, Reading
from pipelines.report.figures import BAD, FAINT, PLAIN, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOADS = {"prefill": "new tokens of a step", "decode": "running sequences", "transfer": "bytes"}
_COVERAGE = re.compile(r"coverage_q[\d.]+")
MOST_LINES = 10


def estimator_figures(readings: Sequence[Reading]) -> dict[str, Figure]:
    """Name -> figure, of those that the readings allow."""
    made = {
        "reliability": reliability(readings),
        "coverage_over_time": coverage_over_time(readings),
        "errors_against_load": errors_against_load(readings),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def reliability(readings: Sequence[Reading]) -> Figure | None:
    """Share of answers within each quantile against its level, by class and app; the groups of most rows."""
    found = [r for r in readings if r.estimator == "length" and _COVERAGE.fullmatch(r.measure) and "@" not in r.group]
    if not found:
        return None
    figure, (axes,) = canvas(1, width=5.0)
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
    rows = {group: max(r.rows for r in found if r.group == group) for group in dict.fromkeys(r.group for r in found)}
    for group in sorted(rows, key=lambda name: (name != ALL, -rows[name], name))[:MOST_LINES]:
        mine = sorted((r for r in found if r.group == group), key=lambda r: r.expected or 0.0)
        _with_interval(axes, [r.expected or 0.0 for r in mine], mine, label="all" if group == ALL else group)
    axes.set(title="Output lengths", xlabel="level of the quantile", ylabel="share of answers within it")
    axes.legend(frameon=False, fontsize=7)
    return figure


def coverage_over_time(readings: Sequence[Reading]) -> Figure | None:
    """Share of answers within the 0.9 quantile, hour by hour."""
    hours = {r.group: r for r in readings if r.estimator == "length" and r.measure == "coverage_q90" and "@" in r.group}
    if not hours:
        return None
    mine = [hours[name] for name in sorted(hours)]
    figure, (axes,) = canvas(1)
    axes.axhline(0.9, color=FAINT, linewidth=1)
    _with_interval(axes, [float(r.group.partition("@")[2].removesuffix("h")) for r in mine], mine, label=None)
    axes.set(title="Answers within the 0.9 quantile", xlabel="hour of the day, UTC", ylabel="share")
    return figure


def errors_against_load(readings: Sequence[Reading]) -> Figure | None:
    """Median error by band of load, one panel an estimator; bands that alarm stand out."""
    found = [r for r in readings if r.measure == "median_error" and "@" in r.group]
    kinds = [name for name in _LOADS if any(r.estimator == name for r in found)]
    if not kinds:
        return None
    figure, axes = canvas(len(kinds))
    for axis, kind in zip(axes, kinds, strict=True):
        mine = sorted((r for r in found if r.estimator == kind), key=lambda r: _start(r.group))
        axis.axhline(0, color=FAINT, linewidth=1)
        for at, r in enumerate(mine):
            colour = BAD if r.alarm else PLAIN
            if r.low is not None and r.high is not None:
                axis.plot([at, at], [100 * r.low, 100 * r.high], color=colour, linewidth=1)
            axis.plot([at], [100 * r.value], "o", color=colour, markersize=4)
        axis.set_xticks(range(len(mine)), [_label(r.group) for r in mine], rotation=45)
        axis.set(title=kind.capitalize(), xlabel=_LOADS[kind], ylabel="predicted / seen - 1, %")
    return figure


def _with_interval(axes: Axes, x: Sequence[float], readings: Sequence[Reading], *, label: str | None) -> None:
    low = [max(0.0, r.value - (r.value if r.low is None else r.low)) for r in readings]
    high = [max(0.0, (r.value if r.high is None else r.high) - r.value) for r in readings]
    axes.errorbar(
        x, [r.value for r in readings], yerr=[low, high], marker="o", markersize=4, capsize=2, linewidth=1, label=label
    )


def _start(group: str) -> float:
    return float(group.partition("@")[2].partition("-")[0] or 0.0)


def _label(group: str) -> str:
    low, _, high = group.partition("@")[2].partition("-")
    return f"under {_short(high)}" if not low else f"from {_short(low)}"


def _short(number: str) -> str:
    value = float(number)
    for unit, size in (("GB", 1e9), ("MB", 1e6)):  # tokens and sequences are never so many
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"
