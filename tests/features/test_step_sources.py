"""Training tables of steps: the finest source of a node and phase, none twice."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from features.schemas import with_all_columns
from features.step_sources import FINEST_FIRST, MIN_ROWS, decode_table, prefill_table
from features.tables import decode_steps
from tests.features.test_tables import load, loads, prefill, requests

SECOND = 1_000_000
CHUNK = 1000


def steps(*rows: dict[str, Any]) -> pl.DataFrame:
    return with_all_columns("steps", pl.DataFrame(rows, infer_schema_length=None)) if rows else NO_STEPS


NO_STEPS = with_all_columns("steps", pl.DataFrame())
NO_REQUESTS = with_all_columns("requests", pl.DataFrame())


def one_pass(at_s: int, phase: str, node: str = "p0", **columns: Any) -> dict[str, Any]:
    told = {"sequences": 2.0, "tokens": 600.0, "context_tokens": 400.0 if phase == "prefill" else None}
    return {
        "observed_at_us": at_s * SECOND, "node": node, "phase": phase, "n_steps": 1, "busy_us": 5_000,
        "new_tokens": 600 if phase == "prefill" else None, "source": "dynamo-fpm", **told, **columns,
    }  # fmt: skip


def counted(at_s: int, phase: str, new_tokens: int, node: str = "p0", source: str = "prometheus") -> dict[str, Any]:
    return {
        "observed_at_us": at_s * SECOND, "node": node, "phase": phase, "busy_us": 900_000, "new_tokens": new_tokens,
        "source": source,
    }  # fmt: skip


def staged(count: int, node: str = "p0") -> pl.DataFrame:
    return requests(*(prefill(k * 1000, k * 1000 + 50, node=node) for k in range(count)))


def test_a_pass_is_a_step_by_itself() -> None:
    (row,) = prefill_table(requests(prefill(0, 50)).head(0), steps(one_pass(7, "prefill")), CHUNK).rows(named=True)
    assert row == {
        "node": "p0", "started_at_us": 7 * SECOND - 5_000, "busy_us": 5_000, "n_steps": 1, "prompts": 2.0,
        "new_tokens": 600, "sum_t2": 360_000.0, "sum_chunk_context": 120_000.0, "source": "passes",
    }  # fmt: skip


def test_passes_stand_before_times_of_stages_where_there_are_enough() -> None:
    few = steps(*(one_pass(k, "prefill") for k in range(MIN_ROWS - 1)))
    many = steps(*(one_pass(k, "prefill") for k in range(MIN_ROWS)))
    log = staged(40)
    assert set(prefill_table(log, few, CHUNK)["source"]) == {"stages"}
    assert set(prefill_table(log, many, CHUNK)["source"]) == {"passes"}
    other = steps(*(one_pass(k, "prefill", node="p1") for k in range(MIN_ROWS)))
    both = prefill_table(log, other, CHUNK)
    assert dict(both.group_by("node").agg(pl.col("source").unique().first()).rows()) == {"p0": "stages", "p1": "passes"}


def test_counters_tell_the_fewest_steps_that_their_tokens_need() -> None:
    (row,) = prefill_table(
        requests(prefill(0, 50)).head(0), steps(counted(9, "prefill", 2_500, source="prefill_counters")), CHUNK
    ).rows(named=True)
    assert (row["n_steps"], row["sum_t2"], row["prompts"]) == (3, 2 * 1000.0**2 + 500.0**2, None)
    assert row["started_at_us"] == 9 * SECOND - 900_000


def test_moments_are_not_counted_twice() -> None:
    samples = loads(load(0, [10, 40, 1000, 160, 4000, 40], 700), load(1, [30, 140, 5000, 700, 30_000, 140], 900))
    again = decode_steps(samples).with_columns(source=pl.lit("decode_moments"))
    table = decode_table(samples, with_all_columns("steps", again), NO_REQUESTS)
    assert table.select("node", "n_steps", "tokens", "source").rows() == [("d0", 20, 800.0, "decode_moments")]


def test_metrics_take_their_batch_from_the_samples_at_their_ends() -> None:
    rows = [
        {"observed_at_us": at * SECOND, "node": "d0", "block_tokens": 64, "active_blocks": blocks,
         "running_requests": n, "source": "prometheus"}
        for at, n, blocks in ((0, 8, 100), (5, 12, 200))
    ]  # fmt: skip
    samples = with_all_columns("node_loads", pl.DataFrame(rows))
    told = steps(counted(5, "decode", 1_000, node="d0"), counted(9, "decode", 50, node="d0"))
    table = decode_table(samples, told, NO_REQUESTS)
    assert table.select("sequences", "tokens", "n_steps", "busy_us", "source").rows() == [
        (10.0, 9_600.0, 100, 900_000, "prometheus")
    ]


def test_passes_of_decode_have_no_drift() -> None:
    table = decode_table(loads(load(0, None, None)), steps(one_pass(1, "decode", node="d0")), NO_REQUESTS)
    assert table.select("sequences", "tokens", "drift", "n_steps").rows() == [(2.0, 600.0, 0.0, 1)]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_order_of_rows_changes_nothing(seed: int) -> None:
    told = steps(*(one_pass(k, "prefill", tokens=600.0 + k) for k in range(30)))
    log = staged(30, "p1")
    mixed = prefill_table(
        log.sample(fraction=1.0, shuffle=True, seed=seed), told.sample(fraction=1.0, shuffle=True, seed=seed), CHUNK
    )
    assert mixed.equals(prefill_table(log, told, CHUNK))


def test_empty_in_empty_out() -> None:
    assert prefill_table(NO_REQUESTS, NO_STEPS, CHUNK).is_empty()
    assert decode_table(with_all_columns("node_loads", pl.DataFrame()), NO_STEPS, NO_REQUESTS).is_empty()
    assert len(set(FINEST_FIRST)) == len(FINEST_FIRST)
