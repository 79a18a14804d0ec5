"""Charts of a diagnosis. Drawn as those of a night: without a display and without global state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from features.diagnosis.answers import STAGES
from pipelines.report.figures import BAD, FAINT, GOOD, PLAIN, canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from features.diagnosis.finding import Rows

CAPTIONS = {
    "ttft_by_class": "Mean TTFT by class, split by stage; what the log does not tell is grey.",
    "ttft_by_node": "The same by P and by D of the request.",
    "load_over_time": "Load of every node over time: one line a node, its mean in each window.",
    "prefix": "What the prefix caches gave of what an endless cache of the day would have given, and why not more.",
}
_COLOURS = {
    "router": "#7a6f9b", "queue": BAD, "compute": PLAIN, "reservation": "#c98a2b", "transfer": "#4f8fbf",
    "admission": "#b8a23a", "first_step": GOOD, "unattributed": "#d3d9de",
}  # fmt: skip
_LABEL_CHARS = 28
_METRICS = (
    ("prefill", "waiting_prompt_tokens", "P: prompt tokens that wait"),
    ("decode", "running_tokens", "D: running tokens"),
)
_CAUSES = {
    "hit": GOOD, "routing": BAD, "eviction": "#c98a2b", "ttl": "#7a6f9b", "eviction_or_ttl": "#c98a2b",
    "not_ready": "#4f8fbf", "unexplained": FAINT,
}  # fmt: skip


def diagnosis_figures(tables: Mapping[str, Rows]) -> dict[str, Figure]:
    """Name -> figure, of those that the tables allow."""
    made = {
        "ttft_by_class": _stages(tables, ("slo_class", "prompt_bucket")),
        "ttft_by_node": _stages(tables, ("prefill_node", "decode_node")),
        "load_over_time": _loads(tables),
        "prefix": _prefix(tables),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def _stages(tables: Mapping[str, Rows], dimensions: tuple[str, str]) -> Figure | None:
    rows = [row for row in tables.get("ttft_stages", ()) if row["dimension"] in dimensions and row["stage"] != "ttft"]
    if not rows:
        return None
    longest = max(len({row["value"] for row in rows if row["dimension"] == name}) for name in dimensions)
    figure, axes = canvas(2, height=1.4 + 0.3 * longest)
    for axis, dimension in zip(axes, dimensions, strict=True):
        mine = [row for row in rows if row["dimension"] == dimension]
        values = list(dict.fromkeys(row["value"] for row in mine))[::-1]
        left = dict.fromkeys(values, 0.0)
        for name in STAGES:
            # A stage that is known for some requests only counts with its part of all of them.
            ms = {r["value"]: r["mean_ms"] * r["known"] / r["requests"] for r in mine if r["stage"] == name}
            if not any(value >= 0.01 for value in ms.values()):
                continue
            widths = [ms.get(value, 0.0) for value in values]
            axis.barh(
                range(len(values)), widths, left=[left[v] for v in values], color=_COLOURS[name], label=STAGES[name]
            )
            left = {value: left[value] + width for value, width in zip(values, widths, strict=True)}
        axis.set_yticks(range(len(values)), [_label(value) for value in values])
        axis.set(title=f"TTFT by {dimension.replace('_', ' ')}", xlabel="ms, mean")
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(), handles.keys(), frameon=False, fontsize=6, ncols=len(handles), loc="outside lower center"
    )
    return figure


def _loads(tables: Mapping[str, Rows]) -> Figure | None:
    rows = tables.get("windows", ())
    shown = [entry for entry in _METRICS if any(row["metric"] == entry[1] for row in rows)]
    if not shown:
        return None
    first = min(row["window_us"] for row in rows)
    figure, axes = canvas(len(shown))
    for axis, (role, metric, title) in zip(axes, shown, strict=True):
        mine = [row for row in rows if (row["role"], row["metric"]) == (role, metric)]
        nodes = sorted({row["node"] for row in mine})
        for node in nodes:
            points = [((row["window_us"] - first) / 6e7, row["value"]) for row in mine if row["node"] == node]
            axis.plot(*zip(*points, strict=True), linewidth=1, label=_label(node))
        axis.set(title=title, xlabel="minutes")
        if len(nodes) <= 10:
            axis.legend(frameon=False, fontsize=6, ncols=2)
    return figure


def _prefix(tables: Mapping[str, Rows]) -> Figure | None:
    whole: Mapping[str, Any] | None = next((row for row in tables.get("prefix", ()) if row["node"] is None), None)
    if whole is None or not whole["ceiling_tokens"]:
        return None
    parts = {"hit": whole["hit_tokens"]} | {row["cause"]: row["tokens"] for row in tables["prefix_loss"]}
    figure, (axis,) = canvas(1, height=1.8)
    left = 0.0
    for cause, tokens in parts.items():
        share = 100 * tokens / whole["ceiling_tokens"]
        axis.barh([""], [share], left=[left], color=_CAUSES[cause], label=f"{cause.replace('_', ' ')} {share:.0f} %")
        left += share
    axis.set(title="Prompt tokens that could have been prefix hits", xlabel="%")
    figure.legend(frameon=False, fontsize=6, ncols=len(parts), loc="outside lower center")
    return figure


def _label(name: str) -> str:
    """A name of a log as a chart can show it: short, printable, and no formula."""
    name = name.replace("–", "-")
    shown = "".join(one if one.isascii() and one.isprintable() else "?" for one in name)
    shown = shown if len(shown) <= _LABEL_CHARS else shown[: _LABEL_CHARS - 2] + ".."
    return shown.replace("$", r"\$")
