from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from features.schemas import with_all_columns
from features.tables import decode_steps, length_table, prefill_steps

START_US = 1_767_571_200_000_000


def requests(*rows: dict[str, Any]) -> pl.DataFrame:
    base = {"pool": "a", "arrived_at_us": START_US, "prompt_tokens": 100, "prefill_cached_tokens": 0}
    full = [{"request_id": f"r{i}", **base, **row} for i, row in enumerate(rows)]
    return with_all_columns("requests", pl.DataFrame(full, infer_schema_length=None))


def prefill(
    start_us: int, end_us: int, *, node: str = "p0", prompt: int = 100, cached: int | None = 0
) -> dict[str, Any]:
    return {
        "prefill_node": node,
        "prefill_started_at_us": START_US + start_us,
        "prefill_finished_at_us": START_US + end_us,
        "prompt_tokens": prompt,
        "prefill_cached_tokens": cached,
    }


def test_lengths_know_what_was_cut_and_leave_out_what_was_not_served() -> None:
    table = length_table(
        requests(
            {"finish_reason": "stop", "output_tokens": 5, "arrived_at_us": START_US + 9},
            {"finish_reason": "length", "output_tokens": 6},
            {"finish_reason": "cancelled", "output_tokens": 2},
            {"finish_reason": "rejected", "output_tokens": 0},
            {"finish_reason": "failed", "output_tokens": 3},
            {"finish_reason": None, "output_tokens": 7},
            {"finish_reason": "stop", "output_tokens": None},
        )
    )
    assert table.select("request_id", "output_tokens", "censored").rows() == [
        ("r1", 6, True),
        ("r2", 2, True),
        ("r5", 7, False),
        ("r0", 5, False),
    ]


def test_turns_of_a_session_count_from_its_first_request() -> None:
    rows = [{"session_id": "s", "arrived_at_us": START_US + i, "output_tokens": 1} for i in (5, 1, 3)]
    table = length_table(requests(*rows, {"output_tokens": 1}))
    assert dict(table.select("request_id", "session_turn").rows()) == {"r0": 2, "r1": 0, "r2": 1, "r3": None}


def test_prompts_with_one_interval_are_one_step() -> None:
    table = prefill_steps(requests(prefill(0, 50, prompt=100, cached=32), prefill(0, 50, prompt=20, cached=16)), 8192)
    assert table.rows(named=True) == [
        {
            "node": "p0",
            "started_at_us": START_US,
            "busy_us": 50,
            "n_steps": 1,
            "prompts": 2,
            "new_tokens": 72,
            "sum_t2": 72 * 72,
            "sum_chunk_context": 68 * 32 + 4 * 16,
            "last_tokens": 72,
        }
    ]


@pytest.mark.parametrize(("prompt", "cached", "chunk"), [(100, 0, 100), (101, 0, 100), (1000, 64, 128), (300, 50, 100)])
def test_a_lone_prompt_takes_a_step_a_chunk(prompt: int, cached: int, chunk: int) -> None:
    (row,) = prefill_steps(requests(prefill(0, 50, prompt=prompt, cached=cached)), chunk).rows(named=True)
    done, steps, t2, context = cached, 0, 0, 0
    while done < prompt:
        part = min(chunk, prompt - done)
        steps, t2, context, done = steps + 1, t2 + part**2, context + part * done, done + part
    assert (row["n_steps"], row["sum_t2"], row["sum_chunk_context"]) == (steps, t2, context)
    assert row["new_tokens"] == prompt - cached


def test_what_contradicts_the_discipline_tells_nothing() -> None:
    rows = [
        prefill(0, 50),  # overlaps the next, though nobody was cut
        prefill(40, 90),
        prefill(80, 120),
        prefill(120, 150),  # touches, does not overlap
        prefill(0, 500, node="p1"),  # covers the next two
        prefill(10, 20, node="p1"),
        prefill(100, 110, node="p1"),
        prefill(500, 510, node="p1"),
        prefill(0, 5, prompt=8000, node="p2"),  # no step can hold both
        prefill(0, 5, prompt=8000, node="p2"),
    ]
    table = prefill_steps(requests(*rows), 8192)
    shown = table.select("node", pl.col("started_at_us") - START_US).rows()
    assert ("p0", 120) in shown
    assert ("p1", 500) in shown
    assert not {("p0", 40), ("p0", 80), ("p1", 10), ("p1", 100), ("p2", 0)} & set(shown)


def test_an_unlogged_hit_is_not_counted_as_no_hit() -> None:
    row = prefill(0, 5, cached=None)
    with_hashes = requests({**row, "block_tokens": 16, "block_hashes": [1, 2]})
    assert prefill_steps(with_hashes, 100).is_empty()
    assert prefill_steps(requests(row), 100).height == 1


def load(at_s: int, moments: list[float] | None, tokens: int | None, node: str = "d0") -> dict[str, Any]:
    return {
        "observed_at_us": START_US + at_s * 1_000_000,
        "node": node,
        "block_tokens": 1,
        "decode_moments": moments,
        "running_tokens": tokens,
    }


def loads(*rows: dict[str, Any]) -> pl.DataFrame:
    return with_all_columns("node_loads", pl.DataFrame(rows, infer_schema_length=None))


def test_steps_are_differences_of_samples() -> None:
    table = decode_steps(
        loads(
            load(0, [10, 40, 1000, 160, 4000, 40], 700),
            load(1, [30, 140, 5000, 700, 30_000, 140], 900),
            load(2, [30, 140, 5000, 700, 30_000, 140], 900),  # no step
            load(0, [1, 1, 10, 1, 10, 1], 10, "d1"),
            load(1, [2, 3, 30, 5, 50, 3], 30, "d1"),
        )
    )
    assert table.select("node", "n_steps", "busy_us", "sequences", "tokens", "new_tokens", "interval_us").rows() == [
        ("d0", 20, 4000, 5.0, 800.0, 100, 1_000_000),
        ("d1", 1, 20, 2.0, 20.0, 2, 1_000_000),
    ]
    assert table["sequences_sq"].to_list() == [27.0, 4.0]


def test_tokens_of_a_window_are_its_sequences_times_those_of_a_request() -> None:
    first = {**load(0, [10, 40, 1000, 160, 4000, 40], 8_000), "running_requests": 10}
    last = {**load(1, [30, 140, 5000, 700, 30_000, 140], 2_000), "running_requests": 2}
    (row,) = decode_steps(loads(first, last)).rows(named=True)
    assert row["tokens"] == pytest.approx(5.0 * 10_000 / 12)
    assert row["drift"] == pytest.approx(((27.0 - 25.0) / 25.0 + (6_000 / 10_000) ** 2) ** 0.5)


def test_a_restart_or_a_silent_sample_makes_no_step() -> None:
    table = decode_steps(
        loads(
            load(0, [10, 40, 1000, 160, 4000, 40], 700),
            load(1, None, None),
            load(2, [20, 80, 2000, 320, 8000, 80], 700),  # still the difference to second 0
            load(3, [5, 20, 500, 80, 2000, 20], 700),  # restarted
            load(4, [6, 24, 600, 96, 2400, 24], 700),
        )
    )
    assert table.select("n_steps", "interval_us").rows() == [(10, 2_000_000), (1, 1_000_000)]


def test_steps_fit_their_table() -> None:
    steps = decode_steps(loads(load(0, [1.0] * 6, 1), load(1, [2.0] * 6, 1)))
    assert with_all_columns("steps", steps).height == 1


def test_empty_in_empty_out() -> None:
    empty = with_all_columns("requests", pl.DataFrame())
    assert length_table(empty).is_empty()
    assert prefill_steps(empty, 100).is_empty()
    assert decode_steps(with_all_columns("node_loads", pl.DataFrame())).is_empty()
