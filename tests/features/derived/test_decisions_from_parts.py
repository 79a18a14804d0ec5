"""Candidate pairs put together from scores, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.readers import envoy_access, epp_scores
from tests.features.derived.parts import derived, parts_of
from tests.features.epp import access, log, pick, profile, score, totals
from tests.features.logs import START_US


def decisions(parts: pl.DataFrame) -> list[tuple[Any, ...]]:
    """(request, seconds, P, D, score, chosen)."""
    rows = derived("decision_parts", "decisions_from_parts", parts)
    shown = rows.select(
        "request_id", pl.col("decided_at_us") - START_US, "prefill_node", "decode_node", "score", "chosen"
    )
    return [(r, at / 1e6, p.removesuffix("/dp0"), d.removesuffix("/dp0"), s, c) for r, at, p, d, s, c in shown.rows()]


def from_epp(folder: Path, *lines: dict[str, Any]) -> list[tuple[Any, ...]]:
    return decisions(parts_of(epp_scores.READER, [log(*lines)], folder))


PAIR = (
    profile("r", "decode", 5),
    totals("r", 5, d0=3.0, d1=2.5),
    pick("r", "d0", second=5),
    profile("r", "prefill", 6),  # the clock of the log ticked in between
    totals("r", 6, p0=1.0, p1=1.75, p2=0.5),
    pick("r", "p1", second=6),
)
PAIRS = [
    ("r", 5.0, "p0", "d0", -4.0, False),
    ("r", 5.0, "p1", "d0", -4.75, True),  # 1.75 + 3
    ("r", 5.0, "p1", "d1", -4.25, False),  # 1.75 + 2.5
    ("r", 5.0, "p2", "d0", -3.5, False),
]


def test_pairs_differ_from_the_chosen_one_on_one_side(tmp_path: Path) -> None:
    assert from_epp(tmp_path, *PAIR) == PAIRS


def test_scores_of_single_plugins_change_nothing(tmp_path: Path) -> None:
    lines = (*PAIR[:1], score("r", "ns/d0", 0.125, 5), score("r", "ns/d1", 1.0, 5), *PAIR[1:])
    assert from_epp(tmp_path, *lines) == PAIRS


def test_the_order_of_files_changes_nothing(tmp_path: Path) -> None:
    # Each file is of one profile: a file cannot know what the lines of another were of.
    files = [log(*PAIR[:3]), log(*PAIR[3:])]
    for turned in (files, files[::-1]):
        assert decisions(parts_of(epp_scores.READER, turned, tmp_path)) == PAIRS


def test_a_pool_that_does_both_phases(tmp_path: Path) -> None:
    found = from_epp(tmp_path, profile("r", "default"), totals("r", a=1.0, b=2.0), pick("r", "b"))
    assert found == [("r", 0.0, "a", "a", -1.0, False), ("r", 0.0, "b", "b", -2.0, True)]


@pytest.mark.parametrize("more", [(), (profile("r", "prefill"), totals("r", p0=1.0))], ids=["not run", "failed"])
def test_a_d_without_a_p_does_both_phases(more: tuple[dict[str, Any], ...], tmp_path: Path) -> None:
    lines = (profile("r", "decode"), totals("r", d0=1.0, d1=2.0), pick("r", "d1"), *more)
    assert from_epp(tmp_path, *lines) == [("r", 0.0, "d0", "d0", -1.0, False), ("r", 0.0, "d1", "d1", -2.0, True)]


def test_without_totals_the_candidates_are_known_and_their_scores_are_not(tmp_path: Path) -> None:
    lines = (profile("r", "decode"), score("r", "ns/d0", 0.5), score("r", "ns/d1", 0.75), pick("r", "d1"))
    assert [(row[3], row[4], row[5]) for row in from_epp(tmp_path, *lines)] == [("d0", None, False), ("d1", -1.0, True)]


def test_without_a_choice_or_a_profile_there_is_no_decision(tmp_path: Path) -> None:
    assert from_epp(tmp_path, profile("r", "decode"), totals("r", d0=1.0)) == []
    assert from_epp(tmp_path, totals("r", d0=1.0), pick("r", "d0")) == []
    assert from_epp(tmp_path, profile("r", "prefill"), totals("r", p0=1.0), pick("r", "p0")) == []


def test_a_retry_is_a_decision_of_its_own_unless_it_cannot_be_told_apart(tmp_path: Path) -> None:
    first = (profile("r", "default"), totals("r", a=1.0, b=2.0), pick("r", "b"))
    later = (totals("r", 9, a=3.0, b=2.0), pick("r", "a", second=9))
    found = from_epp(tmp_path, *first, *later)
    assert [(row[1], row[2], row[5]) for row in found] == [
        (0.0, "a", False),
        (0.0, "b", True),
        (9.0, "a", True),
        (9.0, "b", False),
    ]
    at_once = (totals("r", 1, a=3.0), pick("r", "a", second=1))
    assert from_epp(tmp_path, *first, *at_once) == []


def test_the_proxys_log_knows_the_scores_of_one_side(tmp_path: Path) -> None:
    parts = parts_of(envoy_access.READER, [log(access("r", 1.125, x_prefiller_host_port="10.0.1.1:8000"))], tmp_path)
    assert decisions(parts) == [
        ("r", 1.125, "10.0.1.1:8000", "10.0.0.1:8000", -1.5, True),
        ("r", 1.125, "10.0.1.1:8000", "10.0.0.2:8000", -0.5, False),
    ]


def test_of_two_logs_the_routers_own_counts(tmp_path: Path) -> None:
    proxy = parts_of(envoy_access.READER, [log(access("r", 5), access("other", 5))], tmp_path)
    both = pl.concat([proxy, parts_of(epp_scores.READER, [log(*PAIR)], tmp_path)])
    found = decisions(both)
    assert [row for row in found if row[0] == "r"] == PAIRS
    assert len([row for row in found if row[0] == "other"]) == 2
