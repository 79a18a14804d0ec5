"""The tables that explain a winner: what stands in which row, and nothing for evidence without them."""

from __future__ import annotations

import json
import re
from typing import Any

from pipelines.report.explained import (
    SHOWN,
    ablation_rows,
    explained_html,
    flow_table,
    ladder_rows,
    live_test_lines,
    load_table,
    regret_rows,
    search_rows,
    sensitivity_rows,
    slice_rows,
)
from pipelines.report.table import UNKNOWN
from tests.pipelines.report.values import evidence


def found() -> dict[str, Any]:
    explanation: dict[str, Any] = evidence()["details"]["explanation"]
    return explanation


def text_of(value: dict[str, Any]) -> str:
    return re.sub(r"<[^>]+>", " ", "\n".join(explained_html(value)))


def test_what_moves_goodput_most_is_shown_by_its_sign() -> None:
    rows = ablation_rows(found())
    assert len(rows) == SHOWN
    assert rows[0] == ("DecodeWait", "off", "1", "0", "-3.10 [-3.50, -3.10]")
    assert rows[-1][:2] == ("draws_p", "back to the default")
    assert "knob 1" not in [row[0] for row in rows]
    assert "2 more changes move it less." in text_of(evidence())


def test_around_the_winner() -> None:
    assert sensitivity_rows(found()) == [
        ("DecodeWait", "-0.30 [-0.70, -0.30]", "-4.00 [-4.40, -4.00]"),
        ("SloRisk", "+0.00 [-0.40, +0.00]", "+0.10 [-0.30, +0.10]"),
    ]
    assert load_table(found()) == (
        ("goodput, % at load", "0.9", "1.0", "1.1"),
        [("default", "95.00", "91.70", "83.00")],
    )


def test_losses_stand_first_and_the_largest_gain_last() -> None:
    rows = slice_rows(found())
    assert rows[0] == ("short, prompt < 512 tokens, last third", "1,250", "77.5", "90.0", "-12.5")
    assert [row[-1] for row in rows] == ["-12.5", "+5.0", "+20.0"]
    assert "prompt &lt; 512" in "\n".join(explained_html(evidence()))


def test_flows_side_by_side() -> None:
    head, rows = flow_table(found())
    assert head == ("", "default", "incumbent")
    assert rows == [
        ("prompts across racks, %", "12.5", "50.0"),
        ("of < 512 tokens, %", "12.5", "50.0"),
        ("share of a P, least – most, %", "25.0 – 75.0", "25.0 – 75.0"),
        ("herding on P", "-0.50", "-0.50"),
        ("share of a D, least – most, %", "25.0 – 75.0", "25.0 – 75.0"),
        ("herding on D", "–", "–"),
        ("D-time above high water, %", "12.5", "12.5"),
        ("requests with another pair, %", "37.5", "0.0"),
        ("reused tokens", "41,000", "41,000"),
        ("moved, GB", "8.1", "8.1"),
    ]


def test_a_pool_of_one_rack_has_no_sizes_that_cross() -> None:
    value = found()
    for flow in value["flows"]:
        flow["crossed_frac"] = 0.0
    assert [row[0] for row in flow_table(value)[1]][:2] == ["prompts across racks, %", "share of a P, least – most, %"]


def test_regret_of_classes_with_decisions() -> None:
    assert regret_rows(found()) == [("default", "short", "1,800", "12.5", "2.0")]


def test_the_live_test_in_sentences() -> None:
    plan = found()["switchback"]
    lines = live_test_lines(plan)
    assert lines[0].startswith("Winner and incumbent take turns in blocks of 2 min; the first 40 s")
    assert lines[1] == (
        "546 blocks (88 on equal traffic), 18.2 h, find a gain of 1.20 points with probability 80% at α = 0.025."
    )
    assert lines[2].endswith("wiwiwiwi …")
    unknown = live_test_lines(plan | {"blocks": None, "hours": None, "order": ""})
    assert unknown[1:] == ["The validation days do not say how many blocks it takes.", "Blocks are independent."]


def test_parts_that_a_night_does_not_have_are_left_out() -> None:
    whole, stored = text_of(evidence()), json.loads(json.dumps(evidence()).replace("1.0,", "1,"))
    for heading in ("What the winner lives on", "Around the winner", "Where it loses", "Flows", "Regret", "Live test"):
        assert heading in whole
    assert text_of(stored) == whole
    stored["details"]["explanation"] |= {"ablation": [], "sensitivity": [], "slices": None, "switchback": None}
    bare = text_of(stored)
    assert "at its defaults" in bare
    assert "halved" not in bare
    assert "Where it loses" not in bare
    assert "Live test" not in bare
    del stored["details"]["explanation"]
    assert "The searches" in text_of(stored)
    assert "What the winner lives on" not in text_of(stored)
    stored["details"]["search"] = {"trials": 8}
    assert text_of(stored) == ""
    del stored["details"]["search"]
    assert text_of(stored) == ""


def test_tables_have_their_figures_beside_them() -> None:
    page = "\n".join(explained_html(evidence()))
    pairs = re.findall(r'<div class="pair"><div><table.*?</table></div><img alt="([a-z0-9 ]+)"', page)
    assert pairs == [
        "goodput by rung", "one thing of the winner changed", "prompts across racks by size", "fronts of the searches",
    ]  # fmt: skip
    value = evidence()
    for flow in value["details"]["explanation"]["flows"]:
        flow["crossed_frac"] = 0.0
    assert "prompts across racks by size" not in "\n".join(explained_html(value))


def test_the_best_search_stands_first() -> None:
    held = evidence()["details"]["search"]["searches"]
    held["lmetric/decode_first"]["best_soft_frac"] = 0.86
    assert search_rows(held) == [
        ("lmetric/decode_first", "4", "1", "budget used up", "80.00", "86.00", "84.00"),
        ("searched", "8", "2", "budget used up", "80.00", "85.00", "84.00"),
    ]


def test_a_rung_names_the_terms_that_come_in() -> None:
    rows = ladder_rows(found())
    assert [row[:3] for row in rows] == [
        ("guard", "", "85.00"), ("bookings", "PrefillWait", "87.00"), ("joint pair", "SloRisk", "91.70"),
    ]  # fmt: skip
    assert rows[0][3] == UNKNOWN
    assert rows[1][3].startswith("+2.00")
