"""Clocks of nodes against the router's: causality bounds how far each may be off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.firewall.clocks import KEPT, ClockEvidence, shifted, stages_in_order
from features.schemas import with_all_columns
from tests.features.firewall.judging import in_chunks, judged, served, told_to_start_us
from tests.features.logs import START_US

BEHIND, AHEAD = -300_000, 300_000
S_US = 1_000_000


def waits(i: int) -> int:
    """Between 2 ms and 11 ms; the smallest is 2.003 ms (i = 0, 10, ...)."""
    return 2_003 + (i % 10) * 1_000


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    named = [{"pool": "a", **row} for row in rows]
    return with_all_columns("requests", pl.DataFrame(named, infer_schema_length=None))


def offsets(*rows: dict[str, Any]) -> dict[str, int]:
    evidence = ClockEvidence()
    evidence.see(table(*rows))
    return evidence.offsets_us()


def test_a_node_300_ms_behind_is_set_right_to_within_its_smallest_wait(tmp_path: Path) -> None:
    rows = [
        served(i, prefill_node="p1/dp0" if i % 2 else "p0/dp0", wait_us=waits(i), p_off_us=0 if i % 2 else BEHIND)
        for i in range(100)
    ]
    found = judged(tmp_path, rows)
    # 50 requests: all but the one most extreme bound hold; the second smallest wait of p0 is 2.003 ms as well.
    assert found.report.clock_offsets_us == {"p0/dp0": 300_000 - 2_003}
    assert (found.report.accepted, found.report.corrected, found.report.rules) == (100, {"clock_skew": 50}, {})
    right = told_to_start_us(found.rows.filter(prefill_node="p0/dp0"))
    assert right.to_list() == [waits(i) - 2_003 for i in range(0, 100, 2)]
    other = told_to_start_us(found.rows.filter(prefill_node="p1/dp0"))
    assert other.to_list() == [waits(i) for i in range(1, 100, 2)]
    assert (found.rows["prefill_finished_at_us"] - found.rows["prefill_started_at_us"]).unique().to_list() == [40_003]
    assert (found.rows["transfer_finished_at_us"] - found.rows["transfer_started_at_us"]).unique().to_list() == [19_998]


def test_a_node_300_ms_ahead_is_set_right_to_within_the_way_to_the_first_token(tmp_path: Path) -> None:
    found = judged(tmp_path, [served(i, wait_us=waits(i), p_off_us=AHEAD) for i in range(100)])
    # The first token reaches the router 33 ms after P's end: the clock may be ahead by that much without a sign.
    assert found.report.clock_offsets_us == {"p0/dp0": -(300_000 - 33_000)}
    assert found.report.accepted == 100
    assert told_to_start_us(found.rows).to_list() == [waits(i) + 33_000 for i in range(100)]


@pytest.mark.parametrize(("off_us", "least_us"), [(BEHIND, 300_000 - 63_010), (AHEAD + 700_000, -1_000_000 + 638_994)])
def test_a_decode_node_is_judged_by_when_it_was_told_and_when_it_ended(
    off_us: int, least_us: int, tmp_path: Path
) -> None:
    rows = [served(i, wait_us=waits(i), d_off_us=off_us) for i in range(60)]
    found = judged(tmp_path, rows)
    assert found.report.clock_offsets_us == {"d0/dp0": least_us}
    assert found.report.accepted == 60
    assert told_to_start_us(found.rows).to_list() == [waits(i) for i in range(60)]
    moved = found.rows["decode_admitted_at_us"] - pl.Series([row["decode_admitted_at_us"] for row in rows])
    assert moved.unique().to_list() == [least_us]


def test_a_log_in_order_is_not_touched(tmp_path: Path) -> None:
    rows = [served(i, wait_us=waits(i)) for i in range(60)]
    found = judged(tmp_path, rows)
    assert (found.report.accepted, found.report.corrected, found.report.clock_offsets_us) == (60, {}, {})
    times = [name for name in rows[0] if name.endswith("_at_us")]
    assert found.rows.select(times).rows() == [tuple(row[name] for name in times) for row in rows]


def test_one_damaged_row_of_a_thousand_moves_no_clock(tmp_path: Path) -> None:
    rows = [served(i, wait_us=waits(i)) for i in range(1_000)]
    rows[500] = served(500, wait_us=waits(500), prefill_started_at_us=START_US - 7_000_000)
    found = judged(tmp_path, rows)
    assert found.refused == [("stages_in_order", 501)]
    assert (found.report.accepted, found.report.clock_offsets_us) == (999, {})
    assert found.report.samples["stages_in_order"]["row"] == 501
    assert "no one offset" in found.report.samples["stages_in_order"]["reason"]


@pytest.mark.parametrize("count", [30, 400])
def test_nor_does_it_in_a_small_log_or_beside_a_clock_that_is_off(count: int) -> None:
    damaged = served(3, prefill_started_at_us=START_US - 7_000_000)
    good = [served(i, wait_us=waits(i)) for i in range(count)]
    assert offsets(*good, damaged) == {}
    late = [served(i, wait_us=waits(i), p_off_us=BEHIND) for i in range(count)]
    assert offsets(*late, damaged) == {"p0/dp0": 300_000 - 2_003}
    # Only starts are known: nothing but the other starts speaks against the damaged one.
    alone = dict.fromkeys(("prefill_finished_at_us", "first_token_at_us", "finished_at_us"))
    assert offsets(*({**row, **alone} for row in (*good, damaged))) == {}


def test_a_clock_that_jumps_cannot_be_set_right_and_its_late_half_is_quarantined(tmp_path: Path) -> None:
    rows = [served(i, wait_us=waits(i), p_off_us=BEHIND if i >= 30 else 0) for i in range(60)]
    found = judged(tmp_path, rows)
    assert found.refused == [("stages_in_order", i + 1) for i in range(30, 60)]
    assert (found.report.accepted, found.report.corrected, found.report.clock_offsets_us) == (30, {}, {})


def test_few_requests_say_nothing_about_a_clock() -> None:
    assert offsets(*(served(i, p_off_us=BEHIND) for i in range(19))) == {}
    assert list(offsets(*(served(i, p_off_us=BEHIND) for i in range(20)))) == ["p0/dp0"]
    both = [served(i, p_off_us=BEHIND, d_off_us=BEHIND, decode_node="p0/dp0") for i in range(19)]
    assert offsets(*both) == {}  # a node that is P and D has no more requests for it


def test_few_requests_out_of_order_are_quarantined(tmp_path: Path) -> None:
    found = judged(tmp_path, [served(i, p_off_us=BEHIND) for i in range(19)])
    assert found.report.rules == {"stages_in_order": 19}
    assert found.report.nothing_read


@pytest.mark.parametrize("reason", ["cancelled", "failed", "rejected"])
def test_a_node_that_works_on_after_the_client_has_gone_is_no_fault(reason: str, tmp_path: Path) -> None:
    gone: dict[str, Any] = {"finish_reason": reason, "first_token_at_us": None, "output_tokens": 0}
    rows = [served(i, wait_us=waits(i)) for i in range(60)]
    for i in range(0, 60, 3):  # ended 5 ms after they were told; P and D go on for hundreds of ms
        end = rows[i]["decided_at_us"] + 5_000
        rows[i] = served(i, wait_us=waits(i) + 300_000, **gone, finished_at_us=end)
    found = judged(tmp_path, rows)
    assert (found.report.accepted, found.report.clock_offsets_us) == (60, {})


def test_the_first_token_of_p_and_a_transfer_within_prefill_are_in_order() -> None:
    at = served(0)["prefill_started_at_us"]
    overlapping = served(0, transfer_started_at_us=at + 1_000, transfer_finished_at_us=at + 40_500)
    of_p = served(0, first_token_at_us=at + 40_004, decode_admitted_at_us=at + 200_000)
    reserved = served(0, decode_admitted_at_us=at - 1_000)
    whole_hit = served(
        0, prefill_cached_tokens=1_000, prefill_finished_at_us=at, transfer_started_at_us=at, transfer_finished_at_us=at
    )
    assert stages_in_order(table(overlapping, of_p, reserved, whole_hit)).all()


@pytest.mark.parametrize("tick_us", [1_000, S_US])
def test_coarse_clocks_are_not_skewed_ones(tick_us: int) -> None:
    """Times of nodes, then of the router, then all, cut to whole ticks: none is an offset, none is out of order."""
    nodes = [name for name in served(0) if name.startswith(("prefill_st", "prefill_f", "transfer_s", "transfer_f"))]
    router = ["decided_at_us", "first_token_at_us", "finished_at_us"]
    for names in (nodes, router, [*nodes, *router, "decode_admitted_at_us"]):
        rows = [served(i, wait_us=waits(i) + (i * 37_003) % 900_000) for i in range(200)]
        cut = [{**row, **{name: row[name] // tick_us * tick_us for name in names}} for row in rows]
        assert offsets(*cut) == {}
        assert stages_in_order(table(*cut)).all()


def test_unknown_times_are_no_evidence() -> None:
    names = [name for name in served(0) if name.endswith("_at_us") and not name.startswith("arrived")]
    unknown = [{**served(i), **dict.fromkeys(names)} for i in range(30)]
    assert offsets(*unknown) == {}
    assert stages_in_order(table(*unknown)).all()
    assert offsets(*(served(i, prefill_node=None, decode_node=None) for i in range(30))) == {}


def test_a_corrected_row_may_still_be_quarantined_and_is_then_not_counted_as_set_right(tmp_path: Path) -> None:
    rows = [served(i, wait_us=waits(i), p_off_us=BEHIND) for i in range(60)]
    rows[7] = served(7, p_off_us=BEHIND, transfer_started_at_us=START_US, transfer_finished_at_us=START_US + 20_000)
    found = judged(tmp_path, rows)
    assert found.refused == [("stages_in_order", 8)]
    assert (found.report.accepted, found.report.corrected) == (59, {"clock_skew": 59})


@settings(max_examples=40, deadline=None)
@given(
    off_us=st.integers(-5_000_000, 5_000_000),
    gaps=st.lists(st.tuples(st.integers(0, 400_000), st.integers(0, 400_000)), min_size=20, max_size=60),
)
def test_any_one_offset_leaves_every_row_in_order_and_moves_no_further_than_it_must(
    off_us: int, gaps: list[tuple[int, int]]
) -> None:
    rows = []
    for i, (wait_us, way_us) in enumerate(gaps):
        begun = served(i)["decided_at_us"] + wait_us
        rows.append(
            served(
                i,
                prefill_started_at_us=begun + off_us,
                prefill_finished_at_us=begun + 40_003 + off_us,
                transfer_started_at_us=None,
                transfer_finished_at_us=None,
                decode_admitted_at_us=None,
                first_token_at_us=begun + 40_003 + way_us,
                finished_at_us=begun + 700_001 + way_us,
            )
        )
    by_us = offsets(*rows).get("p0/dp0", 0)
    # Never beyond the truth, and no further from it than the second smallest wait (or way), plus what is rounding.
    slack = sorted(wait for wait, _ in gaps)[1] if off_us < 0 else sorted(way for _, way in gaps)[1]
    assert abs(by_us) <= abs(off_us)
    assert by_us * off_us <= 0
    assert abs(off_us + by_us) <= max(slack, 999) + 1_000


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(0, 70), max_size=6), seed=st.integers(0, 1_000))
def test_evidence_does_not_depend_on_how_the_log_was_cut(sizes: list[int], seed: int) -> None:
    rows = table(
        *(
            served(
                i,
                prefill_node=f"p{(i * seed) % 3}/dp0",
                p_off_us=BEHIND if (i * seed) % 3 == 1 else 0,
                wait_us=waits(i * seed),
            )
            for i in range(120)
        )
    )
    whole, cut = ClockEvidence(), ClockEvidence()
    whole.see(rows)
    in_chunks(rows, sizes, cut.see)
    assert (cut.offsets_us(), cut.disorder) == (whole.offsets_us(), whole.disorder)


def test_memory_of_the_evidence_is_bounded() -> None:
    evidence = ClockEvidence()
    rows = table(*(served(i, wait_us=waits(i)) for i in range(500)))
    for _ in range(12):
        evidence.see(rows)
    held = evidence._held
    assert held is not None
    assert held["rows"].to_list() == [6_000, 6_000]
    assert held["least"].list.len().max() == KEPT


def test_shifting_moves_the_times_of_the_node_alone() -> None:
    before = table(served(0), served(1, prefill_node="p1/dp0"), served(2, prefill_node=None))
    after = shifted(before, {"p1/dp0": 5})
    for name in before.columns:
        by = 5 if name.startswith(("prefill_s", "prefill_f", "transfer_s", "transfer_f")) else 0
        if before[name].dtype == pl.Int64:
            assert (after[name] - before[name]).fill_null(0).to_list() == [0, by, 0], name
        else:
            assert after[name].equals(before[name])
