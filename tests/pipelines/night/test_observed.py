"""Tables that predictions are held against: windows cut from whole days, ports as a law takes them to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.lake import Lake
from features.schemas import TABLES
from models.portable.estimators import Estimators
from models.splits import Split, SplitMode, Window
from pipelines.night.inputs import Inputs
from pipelines.night.observed import observed, seen_before
from pipelines.settings import Pool, load_settings
from tests.pipelines.nights import estimators, settings_file

DAY = date(2026, 3, 5)
MIDNIGHT_US = (DAY - date(1970, 1, 1)).days * 86_400_000_000
SECOND = 1_000_000
LAWS: Estimators = estimators()


def row(at_s: float, **more: Any) -> dict[str, Any]:
    """A request that arrived `at_s` seconds after midnight."""
    at = MIDNIGHT_US + round(at_s * SECOND)
    return {
        "request_id": f"r{at}", "pool": "p", "arrived_at_us": at, "slo_class": "chat", "app": "a", "tenant": "t",
        "prompt_tokens": 40, "output_tokens": 10, "finish_reason": "stop", "block_tokens": 16,
        "block_hashes": [1, 2], "prefill_cached_tokens": 16, "prefill_node": "p0", "decode_node": "d0",
        "prefill_started_at_us": at + 1000, "prefill_finished_at_us": at + 51_000,
        "transfer_started_at_us": at + 51_000, "transfer_finished_at_us": at + 61_000,
        "decode_admitted_at_us": at + 61_000, "first_token_at_us": at + 90_000, "finished_at_us": at + 900_000,
        "transferred_bytes": 10_000_000, **more,
    }  # fmt: skip


def write(lake: Lake, table: str, day: date, rows: list[Mapping[str, Any]]) -> None:
    kinds = TABLES[table].dtypes
    frame = pl.DataFrame(rows, schema={name: kinds[name] for name in rows[0]})
    missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in kinds.items() if name not in frame.columns]
    lake.write(table, day, "p", frame.with_columns(missing).select(list(kinds)), sources={})


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return load_settings(settings_file(tmp_path)).pool("p")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    held = Lake(tmp_path / "lake")
    yesterday = DAY - timedelta(days=1)
    write(held, "requests", yesterday, [row(-100.0, app="old", tenant=None)])
    late = row(50.0, app="late")
    write(held, "requests", DAY, [row(1.0), row(5.0, finish_reason="cancelled"), row(9.0, app=None), late])
    moments = [[0.0] * 6, [10.0, 40.0, 2e5, 160.0, 8e5, 40.0]]
    loads = [
        {"observed_at_us": MIDNIGHT_US + k * SECOND, "node": "d0", "role": "decode", "block_tokens": 16,
         "running_tokens": 400, "decode_moments": moments[k]}
        for k in range(2)
    ]  # fmt: skip
    write(held, "node_loads", yesterday, [{**loads[0], "observed_at_us": MIDNIGHT_US - SECOND}])
    write(held, "node_loads", DAY, loads)
    return held


WINDOW = Window(DAY, MIDNIGHT_US, MIDNIGHT_US + 20 * SECOND)


def test_a_window_is_cut_from_a_whole_day(lake: Lake, pool: Pool) -> None:
    found = observed(lake, pool, [WINDOW], caches=True)
    tables = found.under(pool, LAWS.transfer)
    assert tables.lengths["arrived_at_us"].to_list() == [MIDNIGHT_US + k * SECOND for k in (1, 9)]
    assert tables.lengths["ended_at_us"].null_count() == 0
    assert tables.prefill_steps.height == 3
    assert tables.decode_steps["n_steps"].to_list() == [10]
    assert tables.transfers.height == 3
    # Yesterday's prompts fill the cache, and what they hit is not asked for.
    assert tables.prompts["cached_tokens"].to_list() == [None, 16, 16, 16]
    assert [len(ids) for ids in tables.prompts["blocks"]] == [2, 2, 2, 2]
    assert observed(lake, pool, [WINDOW], caches=False).under(pool, LAWS.transfer).prompts.is_empty()


def test_ports_are_as_fast_as_the_law_takes_them_to_be(lake: Lake, pool: Pool) -> None:
    found = observed(lake, pool, [WINDOW], caches=False)
    plain = found.under(pool, LAWS.transfer).transfers["share_bytes_per_s"]
    slow = replace(LAWS.transfer, port_factor={"out:p0": 0.25, "in:p0": 0.1})
    assert found.under(pool, slow).transfers["share_bytes_per_s"].to_list() == pytest.approx((plain * 0.25).to_list())


def test_names_that_estimators_may_know(lake: Lake, pool: Pool) -> None:
    split = Split(SplitMode.TRAIN_ONLY, (WINDOW,), (), ())
    days = {DAY - timedelta(days=1): (0, 1), DAY: (0, 1)}
    inputs = Inputs(DAY, days, 0, split, None, None, {})  # type: ignore[arg-type]
    known = seen_before(lake, pool, inputs, LAWS, "2026-03-04").names
    assert known["app"] == {"chat/old", "chat/a", "*"}
    assert known["prefill_node"] == {"p0"}
    assert "tenant" not in known
    assert "app" not in seen_before(lake, pool, inputs, LAWS, "2026-03-01").names
