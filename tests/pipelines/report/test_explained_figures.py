"""Figures that explain a winner: what they show, in which colour, and that they are left out where there is nothing."""

from __future__ import annotations

from typing import Any

from pipelines.report.explained_figures import ablation, crossings, explained_figures, fronts, ladder
from pipelines.report.figures import BAD, FAINT, GOOD, png
from tests.pipelines.report.values import evidence


def details() -> dict[str, Any]:
    found: dict[str, Any] = evidence()["details"]
    return found


def found() -> dict[str, Any]:
    explanation: dict[str, Any] = details()["explanation"]
    return explanation


def texts(figure: Any, axis: str) -> list[str]:
    return [tick.get_text() for tick in getattr(figure.axes[0], f"get_{axis}ticklabels")()]


def test_figures_are_the_same_bytes_again() -> None:
    first, second = (explained_figures(evidence()) for _ in range(2))
    assert list(first) == ["ladder", "ablation", "crossings", "fronts"]
    for name, figure in first.items():
        assert png(figure) == png(second[name])


def test_rungs_with_their_goodput_and_the_interval_of_their_gain() -> None:
    figure = ladder(found()["ladder"])
    assert figure is not None
    assert texts(figure, "y") == ["guard", "bookings", "joint pair"]
    goodput, gains = figure.axes
    assert [float(x) for x in goodput.lines[0].get_xdata()] == [85.0, 87.0, 91.7]
    bars = [line for line in gains.lines if line.get_linewidth() == 2]
    assert [list(map(float, bar.get_ydata())) for bar in bars] == [[1.0, 1.0], [2.0, 2.0]]  # the lowest has no gain
    assert [round(float(x), 6) for x in bars[0].get_xdata()] == [0.4, 2.1]
    assert bars[0].get_color() == GOOD


def test_the_greatest_loss_is_on_top() -> None:
    figure = ablation(found()["ablation"])
    assert figure is not None
    names = texts(figure, "y")
    assert names[-1] == "DecodeWait off"
    assert names[0] == "draws_p at default"
    assert len(names) == 12
    bars: list[Any] = list(figure.axes[0].patches)
    assert round(bars[-1].get_width(), 6) == -3.1
    assert _hex(bars[-1]) == BAD  # its interval is below 0
    assert _hex(bars[0]) == FAINT


def _hex(bar: Any) -> str:
    from matplotlib.colors import to_hex

    return to_hex(bar.get_facecolor())


def test_only_sizes_that_came_are_shown_and_only_where_prompts_cross() -> None:
    flows = found()["flows"]
    figure = crossings(flows, details())
    assert figure is not None
    assert texts(figure, "x") == ["< 512"]
    assert [round(bar.get_height(), 6) for bar in figure.axes[0].patches] == [12.5, 50.0]  # type: ignore[attr-defined]
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["default (winner)", "incumbent"]
    for flow in flows:
        flow["crossed_frac"] = 0.0
    assert crossings(flows, details()) is None


def test_the_chosen_trial_is_marked_on_its_front() -> None:
    searches = details()["search"]["searches"]
    figure = fronts(searches)
    assert figure is not None
    stars = [line for line in figure.axes[0].lines if line.get_marker() == "*"]
    assert [(float(s.get_xdata()[0]), float(s.get_ydata()[0])) for s in stars] == [(1.5, 88.0), (1.3, 93.0)]
    assert figure.axes[0].get_xscale() == "linear"
    searches["searched"]["chosen_trial"] = 7  # not on the front
    figure = fronts(searches)
    assert figure is not None
    assert len([line for line in figure.axes[0].lines if line.get_marker() == "*"]) == 1
    for far, scale in ((9_000.0, "log"), (0.0, "linear")):
        searches["searched"]["front"][0]["ttft_p99_ms"] = far
        figure = fronts(searches)
        assert figure is not None
        assert figure.axes[0].get_xscale() == scale


def test_searches_far_below_the_best_are_counted_only() -> None:
    searches = details()["search"]["searches"]
    searches["lmetric/decode_first"]["front"][0]["goodput_frac"] = 0.1
    figure = fronts(searches)
    assert figure is not None
    assert len([line for line in figure.axes[0].lines if line.get_marker() == "*"]) == 1
    assert [text.get_text() for text in figure.axes[0].texts] == ["1 more searches end over 10 points below the best"]


def test_older_evidence_has_none() -> None:
    value = evidence()
    value["details"]["explanation"] = None
    value["details"]["search"] = {"trials": 8}
    assert explained_figures(value) == {}
    assert explained_figures({"details": {}}) == {}
    one = {name: report | {"front": report["front"][:1]} for name, report in details()["search"]["searches"].items()}
    assert fronts(one) is None
    assert fronts({"searched": {"trials": 1}}) is None
