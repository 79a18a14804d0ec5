"""The table of a night: one row a policy, as rich text for a terminal and as Markdown for documents.

Both are made from the evidence in the form in which a policy file carries it, so a table can be made again from any
stored file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from features.errors import PolicyError

if TYPE_CHECKING:
    from rich.table import Table

Arm: TypeAlias = Mapping[str, Any]
"""One row of `details.arms`: the keys of `policies.evidence.arms.ArmRow`."""

WIDTH = 120
"""Characters that the table needs; set it as the console's width where the output is no terminal."""
UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its head, and the lines of its cell."""

    head: tuple[str, ...]
    cell: Callable[[Arm], tuple[str, ...]]


def arms_of(evidence: Mapping[str, Any]) -> list[Arm]:
    """The rows of the evidence {verdict, promotion_cap, reason, details}, by goodput, the best first.

    Raises PolicyError for a night that judged no policy.
    """
    arms = evidence.get("details", {}).get("arms")
    if not arms:
        raise PolicyError("a table needs evidence with arms", value=evidence.get("reason"))
    return sorted(arms, key=lambda a: (-a["goodput_frac"], a["name"]))


def arms_table(evidence: Mapping[str, Any]) -> Table:
    """The arms on the validation days, for `rich`. P50 stands over P99, a difference over its interval."""
    from rich import box
    from rich.table import Table

    arms = arms_of(evidence)
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        title=heading(evidence),
        caption=footnote(evidence),
        caption_justify="left",
    )
    for at, column in enumerate(columns(arms)):
        table.add_column("\n".join(column.head), justify="right" if at else "left", no_wrap=True)
    for arm in arms:
        cells = ("\n".join(column.cell(arm)) for column in columns(arms))
        table.add_row(*cells, style="bold" if "winner" in arm["roles"] else "")
    return table


def arms_markdown(evidence: Mapping[str, Any]) -> str:
    """The same table in Markdown, with its footnote below."""
    head, rows = arms_rows(evidence)
    aligned = ["---" if at == 0 else "---:" for at in range(len(head))]
    return "\n".join([*map(_row, [head, aligned, *rows]), "", footnote(evidence), ""])


def arms_rows(evidence: Mapping[str, Any], wanted: Collection[str] = ()) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the same table, one line a cell. `wanted`: heads of the columns, none = all."""
    arms = arms_of(evidence)
    shown = {" ".join(column.head).strip(): column for column in columns(arms)}
    shown = {head: column for head, column in shown.items() if not wanted or head in wanted}
    return list(shown), [[_joined(column.cell(arm)) for column in shown.values()] for arm in arms]


def heading(evidence: Mapping[str, Any]) -> str:
    """What the rows were measured on."""
    details = evidence["details"]
    days, held = list(details["validation_days"]), len(details["arms"])
    span = days[0] if len(days) == 1 else f"{days[0]} … {days[-1]}"
    return f"{held} policies on the validation days ({span})"


def footnote(evidence: Mapping[str, Any]) -> str:
    """How to read the table."""
    details = evidence["details"]
    level = 100 * (1 - 2 * details["alpha"])
    carried = next((a["load_carried"]["level"] for a in details["arms"] if a["load_carried"]), None)
    load = "" if carried is None else f"Load = factor on the arrival rate at which goodput falls to {carried:.0%}. "
    return (
        f"* was tested against the incumbent. {load}Differences of goodput in points with {level:.0f} % intervals of a "
        f"paired bootstrap over blocks of {details['block_s']:.0f} s. Counts are sums over the validation days."
    )


def columns(arms: list[Arm]) -> tuple[Column, ...]:
    """The columns in order; units are chosen so that the largest value stays short."""
    moved, bytes_unit = _scale([a["transferred_bytes"] for a in arms], ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")))
    reused, tokens_unit = _scale([a["reused_tokens"] for a in arms], ((1e6, "M tokens"), (1e3, "k tokens")))
    level = next((a["load_carried"]["level"] for a in arms if a["load_carried"]), 0.9)
    return (
        Column(("policy", "family"), _name),
        Column(("goodput", "%"), lambda a: (f"{100 * a['goodput_frac']:.2f}",)),
        Column(("load at", f"{level:.0%}"), lambda a: (load_text(a["load_carried"]),)),
        Column(("TTFT ms", "P50/P99"), lambda a: _quantiles(a["ttft_ms"], 0)),
        Column(("TPOT ms", "P50/P99"), lambda a: _quantiles(a["tpot_ms"], 1)),
        Column(("rejected", ""), lambda a: (f"{a['rejected']:,}",)),
        Column(("preempted", ""), lambda a: (f"{a['preemptions']:,}",)),
        Column(("reused", tokens_unit), lambda a: (f"{a['reused_tokens'] / reused:,.1f}",)),
        Column(("moved", bytes_unit), lambda a: (f"{a['transferred_bytes'] / moved:,.2f}",)),
        Column(("to the", "incumbent"), lambda a: _difference(a, "incumbent")),
        Column(("to the", "default"), lambda a: _difference(a, "default")),
    )


def load_text(carried: Mapping[str, Any] | None) -> str:
    """A load carried, with its bound where the sweep ended before goodput crossed the level."""
    if carried is None:
        return UNKNOWN
    sign = {"at_least": "≥ ", "at_most": "≤ "}.get(carried["bound"], "")
    return f"{sign}{carried['load']:.2f}"


def interval_text(difference: Mapping[str, Any]) -> str:
    """A difference of goodput in points with its interval."""
    return " ".join(_points(difference))


def arm_title(arm: Arm) -> str:
    """Name and family of an arm on one line."""
    return " ".join(_name(arm))


def _name(arm: Arm) -> tuple[str, ...]:
    """The arm, below it its family where the name does not say so, and its rack rule on a line of its own."""
    name, _, variant = arm["name"].partition("/")
    variant = variant or (arm["same_rack"] if arm["same_rack"] != "none" else "")
    star = " *" if "winner" in arm["roles"] else ""
    lines = (f"{name}{star}", "" if name == arm["family"] else f"({arm['family']})", f"/{variant}" if variant else "")
    return tuple(line for line in lines if line)


def _difference(arm: Arm, reference: str) -> tuple[str, ...]:
    return (UNKNOWN,) if reference in arm["roles"] else _points(arm[f"against_{reference}"])


def _points(difference: Mapping[str, Any]) -> tuple[str, str]:
    value, low, high = (100 * difference[key] for key in ("value", "low", "high"))
    return f"{value:+.2f}", f"[{low:+.2f}, {high:+.2f}]"


def _quantiles(quantiles: Mapping[str, Any], digits: int) -> tuple[str, str]:
    p50, p99 = (quantiles[key] for key in ("p50", "p99"))
    return tuple(UNKNOWN if v is None else f"{v:,.{digits}f}" for v in (p50, p99))  # type: ignore[return-value]


def _scale(values: list[int], units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """The first unit of which the largest value has at least one, else the last."""
    largest = max(values, default=0)
    return next(((size, name) for size, name in units if largest >= size), units[-1])


def _joined(cell: tuple[str, ...]) -> str:
    """A cell on one line: two numbers get a slash between them."""
    slash = len(cell) == 2 and not cell[1].startswith(("[", "(", "/"))
    return (" / " if slash else " ").join(cell)


def _row(cells: Any) -> str:  # noqa: ANN401  any iterable of text
    return "| " + " | ".join(cells) + " |"
