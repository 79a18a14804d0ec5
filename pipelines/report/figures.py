"""The figures of a night, made from what its stages stored. Drawn without a display and without global state."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.report.table import arm_title, arms_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 110
GOOD, BAD, PLAIN, FAINT = "#1a7f5a", "#b5402f", "#33506b", "#9aa7b3"


def length_reliability(fitted: Mapping[str, Any]) -> Figure:
    """Share of answers within each predicted quantile against the quantile's level, by class, with 95 % intervals."""
    held_out = fitted["holdout"]["length"]
    scores = held_out or fitted["report"]["length"]["scores"]
    figure, (axes,) = canvas(1, width=5.0)
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
    for name in dict.fromkeys(score["slo_class"] for score in scores):
        mine = [score for score in scores if score["slo_class"] == name]
        level = [score["level"] for score in mine]
        covered = [score["coverage"]["covered_frac"] for score in mine]
        low = [c - score["coverage"]["low_frac"] for c, score in zip(covered, mine, strict=True)]
        high = [score["coverage"]["high_frac"] - c for c, score in zip(covered, mine, strict=True)]
        label = "all" if name == "*" else name
        axes.errorbar(level, covered, yerr=[low, high], marker="o", markersize=4, capsize=2, linewidth=1, label=label)
    where = "validation days" if held_out else "train days"
    axes.set(title=f"Output lengths, {where}", xlabel="level of the quantile", ylabel="share of answers within it")
    axes.legend(frameon=False, fontsize=8)
    return figure


def step_residuals(fitted: Mapping[str, Any]) -> Figure:
    """Signed error of step times by load: one dot a cell of node × size × context, its median."""
    figure, axes = canvas(2)
    for axis, law, size in zip(axes, ("prefill", "decode"), ("new tokens of a step", "running sequences"), strict=True):
        held_out = fitted["holdout"][law]
        cells = held_out or fitted["report"][law]["cells"]
        axis.axhline(0, color=FAINT, linewidth=1)
        for node in sorted({cell["node"] for cell in cells}):
            mine = [cell for cell in cells if cell["node"] == node]
            sizes = [max(cell["size_from"], 1) for cell in mine]
            axis.scatter(sizes, [100 * c["error"]["signed_median_frac"] for c in mine], s=10, label=node, alpha=0.7)
        if cells:
            axis.set_xscale("log", base=2)
        where = "validation days" if held_out else "train days"
        axis.set(title=f"{law.capitalize()} steps, {where}", xlabel=f"{size}, from", ylabel="predicted / seen - 1, %")
        if 0 < len({cell["node"] for cell in cells}) <= 8:
            axis.legend(frameon=False, fontsize=6, ncols=2)
    return figure


def outcome_by_family(evidence: Mapping[str, Any]) -> Figure:
    """Difference of every arm's goodput to the incumbent's, with its interval, and the goodput it stands on."""
    arms = arms_of(evidence)[::-1]
    figure, (left, right) = canvas(2, height=1.2 + 0.34 * len(arms))
    labels = [arm_title(arm) for arm in arms]
    for at, arm in enumerate(arms):
        left.plot([100 * arm["goodput_frac"]], [at], "o", color=_colour(arm), markersize=6)
    left.set_yticks(range(len(arms)), labels)
    left.set_ylim(-0.6, len(arms) - 0.4)
    left.grid(axis="x", color="#e6ebef")
    left.set(title="Goodput, validation days", xlabel="%")
    left.tick_params(axis="y", labelsize=7)
    right.axvline(0, color=FAINT, linewidth=1)
    for at, arm in enumerate(arms):
        value, low, high = (100 * arm["against_incumbent"][key] for key in ("value", "low", "high"))
        if "incumbent" not in arm["roles"]:
            right.plot([low, high], [at, at], color=_colour(arm), linewidth=2)
            right.plot([value], [at], "o", color=_colour(arm), markersize=4)
    level = 100 * (1 - 2 * evidence["details"]["alpha"])
    right.set(title="Difference to the incumbent", xlabel=f"points of goodput, {level:.0f} % interval", yticks=[])
    right.set_ylim(left.get_ylim())
    return figure


def goodput_by_load(evidence: Mapping[str, Any]) -> Figure | None:
    """Goodput over the load, for every arm that was swept; None if none was."""
    arms = [arm for arm in arms_of(evidence) if arm["load_carried"]]
    if not arms:
        return None
    figure, (axes,) = canvas(1)
    for arm in arms:
        loads, goodput = zip(*arm["load_carried"]["curve"], strict=True)
        told = bool(arm["roles"])
        axes.plot(
            loads, [100 * value for value in goodput], marker=".", linewidth=2 if told else 1, alpha=1 if told else 0.5,
            label=arm_title(arm),
        )  # fmt: skip
    axes.axhline(100 * arms[0]["load_carried"]["level"], color=FAINT, linewidth=1)
    axes.set(title="Load carried, validation days", xlabel="factor on the arrival rate", ylabel="goodput, %")
    # Beside the curves: a dozen names would cover them.
    figure.legend(loc="outside right center", frameon=False, fontsize=6)
    return figure


def png(figure: Figure) -> bytes:
    """A figure as PNG."""
    out = io.BytesIO()
    # Without the library's name the same values give the same bytes.
    figure.savefig(out, format="png", dpi=DPI, metadata={"Software": None})
    return out.getvalue()


def png_base64(figure: Figure) -> str:
    """A figure as PNG in base64, for a page that needs no other file."""
    return base64.b64encode(png(figure)).decode()


def figures_of(fitted: Mapping[str, Any] | None, evidence: Mapping[str, Any]) -> dict[str, Figure]:
    """Name -> figure, of those that the night's values allow."""
    made: dict[str, Figure | None] = {}
    if fitted is not None:
        made |= {"length_reliability": length_reliability(fitted), "step_residuals": step_residuals(fitted)}
    if evidence["details"].get("arms"):
        makers: Sequence[tuple[str, Callable[[Mapping[str, Any]], Figure | None]]] = (
            ("outcome_by_family", outcome_by_family),
            ("goodput_by_load", goodput_by_load),
        )
        made |= {name: maker(evidence) for name, maker in makers}
    return {name: figure for name, figure in made.items() if figure is not None}


def _colour(arm: Mapping[str, Any]) -> str:
    lead = arm["against_incumbent"]
    if "incumbent" in arm["roles"]:
        return PLAIN
    return GOOD if lead["low"] > 0 else BAD if lead["high"] < 0 else FAINT


def canvas(panels: int, *, width: float = 9.0, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side, in the reports' style."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width if panels > 1 else min(width, 6.0), height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(1, panels, at + 1) for at in range(panels)]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.title.set_fontsize(9)
        axis.tick_params(labelsize=7)
    return figure, axes
