"""Counters that go back against engines that restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.firewall.counters import CounterEvidence
from features.schemas import with_all_columns
from tests.features.firewall.judging import in_chunks, judged
from tests.features.logs import START_US, poll

RULE = "counter_went_back"


def sample(i: int, *, node: str = "p0/dp0", **counters: Any) -> dict[str, Any]:
    steady = {"prefill_busy_us": 1_000 * (i + 1), "generated_tokens": 50 * (i + 1), "preemptions": 0}
    return {"node": node, "observed_at_us": START_US + i * 1_000_000, "block_tokens": 1, **steady, **counters}


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    return with_all_columns("node_loads", pl.DataFrame(rows, infer_schema_length=None))


def broken(*rows: dict[str, Any]) -> list[int]:
    kept = CounterEvidence().go_on(table(*rows))
    return [i for i, holds in enumerate(kept) if not holds]


def loads(i: int, *, busy_us: int, steps: float) -> dict[str, Any]:
    value = poll(i)
    value["body"]["loads"][0].update(total_prefill_busy_us=busy_us, decode_moments=[steps, 1, 1, 1, 1, 1])
    return value


def test_a_counter_that_falls_while_another_goes_on_is_quarantined(tmp_path: Path) -> None:
    rows = [loads(i, busy_us=1_000 * (i + 1), steps=10.0 * (i + 1)) for i in range(6)]
    rows[3] = loads(3, busy_us=2_500, steps=40.0)  # 3 000 was read before
    found = judged(tmp_path, rows, table="node_loads")
    assert found.refused == [(RULE, 4)]
    assert found.report.accepted == 5
    assert "not read at one moment" in found.report.samples[RULE]["reason"]


def test_a_restart_sets_all_counters_back_and_is_no_fault() -> None:
    assert broken(sample(0), sample(1), sample(2, prefill_busy_us=5, generated_tokens=1)) == []
    # 3 preemptions since the restart, none in the engine's life before: nothing went on.
    assert broken(sample(8), sample(9, prefill_busy_us=5, generated_tokens=1, preemptions=3)) == []
    # Twice as much in one interval as in the life before: a restart soon after a start.
    assert broken(sample(0), sample(1, prefill_busy_us=900, generated_tokens=101)) == []


def test_what_stands_still_does_not_contradict_a_fall() -> None:
    assert broken(sample(3), sample(4, prefill_busy_us=100, generated_tokens=200, preemptions=0)) == []


def test_where_only_some_counters_start_anew_one_sample_is_lost_and_no_more() -> None:
    after = [sample(i, prefill_busy_us=10 * i) for i in (5, 6, 7)]
    assert broken(sample(3), sample(4), *after) == [2]


def test_unknown_counters_are_not_judged() -> None:
    gap = sample(1, prefill_busy_us=None, generated_tokens=None)
    assert broken(sample(0), gap, sample(2, prefill_busy_us=500)) == []
    assert broken(sample(0), sample(1, generated_tokens=None), sample(2, prefill_busy_us=500)) == []
    assert broken(*(sample(i, prefill_busy_us=None, generated_tokens=None) for i in range(3))) == []


def test_nodes_are_judged_apart_and_samples_out_of_order_not_at_all() -> None:
    one, other = sample(5), sample(6, node="p1/dp0", prefill_busy_us=5)
    assert broken(one, other, sample(7)) == []
    assert broken(sample(5), sample(2), sample(6)) == []
    assert broken(sample(5), sample(5, prefill_busy_us=1, generated_tokens=301)) == []


def test_steps_of_decode_count_as_well() -> None:
    moments = [[40.0, 1, 1, 1, 1, 1], [30.0, 1, 1, 1, 1, 1], [], None]
    rows = [sample(i, decode_moments=held) for i, held in enumerate(moments)]
    assert broken(*rows) == [1]


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["p0/dp0", "p1/dp0"]), st.integers(0, 5), st.integers(0, 5), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    sizes=st.lists(st.integers(0, 12), max_size=5),
)
def test_growing_counters_with_restarts_are_kept_and_cuts_change_nothing(
    steps: list[tuple[str, int, int, bool]], sizes: list[int]
) -> None:
    held: dict[str, tuple[int, int]] = {}
    rows = []
    for i, (node, busy, made, restarts) in enumerate(steps):
        before = (0, 0) if restarts else held.get(node, (0, 0))
        held[node] = (before[0] + busy, before[1] + made)
        rows.append(sample(i, node=node, prefill_busy_us=held[node][0], generated_tokens=held[node][1]))
    frame = table(*rows)
    whole = CounterEvidence().go_on(frame).to_list()
    evidence = CounterEvidence()
    cut: list[bool] = []
    in_chunks(frame, sizes, lambda part: cut.extend(evidence.go_on(part)))
    assert cut == whole
    if not any(restarts for *_, restarts in steps):
        assert all(whole)


@pytest.mark.parametrize("size", [1, 7])
def test_a_fall_across_a_cut_is_seen(size: int) -> None:
    frame = table(*(sample(i) for i in range(7)), sample(7, prefill_busy_us=6_000))
    evidence = CounterEvidence()
    kept: list[bool] = []
    in_chunks(frame, [size] * 7, lambda part: kept.extend(evidence.go_on(part)))
    assert kept == [True] * 7 + [False]
