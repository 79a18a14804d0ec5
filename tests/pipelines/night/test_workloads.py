"""Requests of a log as traffic of the twin: who counts, who is load only, what comes before."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from features.errors import SettingsError
from features.lake import Lake
from models.splits import Window
from pipelines.night.inputs import Inputs, select_inputs
from pipelines.night.workloads import WindowTraffic, window_traffic
from pipelines.settings import Pool
from policies.lengths import constant_length
from policies.twin.workload import NAMED, NUMBERS
from tests.pipelines.night.emulated import SETTINGS, write_settings

LENGTHS = replace(constant_length(0.0), rows=((70.0, 140.0),))
DAY_1, DAY_2 = date(2026, 3, 2), date(2026, 3, 3)
S = 1_000_000


def midnight(day: date) -> int:
    return (day - date(1970, 1, 1)).days * 86_400 * S


def row(day: date, at_s: float, name: str, **more: Any) -> dict[str, Any]:
    """A served request: 100 tokens in 2 s after a first token at 0.5 s."""
    at = midnight(day) + round(at_s * S)
    return {
        "request_id": name,
        "pool": "small",
        "arrived_at_us": at,
        "slo_class": "short",
        "prompt_tokens": 800,
        "output_tokens": 101,
        "finish_reason": "stop",
        "prefill_node": "p1/dp0",
        "decode_node": "d0/dp0",
        "prefill_started_at_us": at + 100,
        "prefill_finished_at_us": at + 200,
        "prefill_cached_tokens": 256,
        "first_token_at_us": at + S // 2,
        "finished_at_us": at + S // 2 + 2 * S,
        "block_tokens": 256,
        "block_hashes": [2**63 + 1, 2**63 + 2, 7],
    } | more


def gone(reason: str, **more: Any) -> dict[str, Any]:
    times = ("prefill_started_at_us", "prefill_finished_at_us", "first_token_at_us", "finished_at_us")
    nodes = ("prefill_node", "decode_node", "prefill_cached_tokens")
    return {"finish_reason": reason, "output_tokens": 0, **dict.fromkeys((*times, *nodes))} | more


class World:
    """A lake made by hand and the night of its last day."""

    def __init__(self, folder: Path, rows: dict[date, list[dict[str, Any]]], *, warm_up_s: float = 60) -> None:
        text = SETTINGS.replace('names = ["d0/dp0", "d1/dp0"]', 'names = ["d0/dp0", "d1/dp0"]\nblocks = 2500')
        text = text.replace("warm_up_s = 60", f"warm_up_s = {warm_up_s}")
        self.pool: Pool = write_settings(folder, text=text).pool("small")
        self.lake = Lake(folder / "lake")
        for day, held in rows.items():
            self.lake.write("requests", day, "small", pl.DataFrame(held, infer_schema_length=None), sources={})
        self.inputs: Inputs = select_inputs(self.lake, self.pool, max(rows))

    def traffic(self, day: date, *, forced: bool = False) -> WindowTraffic:
        first, last = self.inputs.traffic[day]
        window = Window(day, first, last + 1)
        return window_traffic(self.lake, self.pool, self.inputs, window, LENGTHS, forced=forced)


def test_what_did_not_end_well_is_load_demand_or_nothing(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        {
            DAY_1: [
                row(DAY_1, 1, "a"),
                row(DAY_1, 2, "rejected", **gone("rejected")),
                row(DAY_1, 3, "cancelled", finish_reason="cancelled", output_tokens=5),
                row(DAY_1, 4, "cancelled in the queue", **gone("cancelled")),
                row(DAY_1, 5, "failed", finish_reason="failed", output_tokens=90, finished_at_us=None),
                row(DAY_1, 6, "unknown length", output_tokens=None),
            ]
        },
    )
    free = world.traffic(DAY_1)
    load = free.workload
    assert load.request_ids == ("a", "rejected", "cancelled", "failed", "unknown length")
    assert load.output_tokens.tolist() == [101, 70, 5, 90, 70]
    assert load.scored.tolist() == [True, True, False, True, True]
    assert (load.forced_prefill == -1).all()
    assert free.counts == {
        "scored": 4, "warm_up": 0, "cancelled": 1, "estimated_length": 3, "left_out": 1, "forced": 0
    }  # fmt: skip
    placed = world.traffic(DAY_1, forced=True)
    assert placed.workload.request_ids == ("a", "cancelled", "failed", "unknown length")
    assert placed.workload.output_tokens.tolist() == [101, 5, 90, 70]
    assert placed.workload.forced_prefill.tolist() == [1, 1, 1, 1]
    assert placed.workload.forced_decode.tolist() == [0, 0, 0, 0]
    np.testing.assert_allclose(placed.logged.ttft_s, [0.5, np.nan, np.nan, 0.5])
    np.testing.assert_allclose(placed.logged.tpot_s, [0.02, np.nan, np.nan, 0.0])
    assert placed.logged.cached_tokens.tolist() == [256, 256, 256, 256]


def test_routers_know_what_the_log_s_routers_knew_and_learn_from_known_answers(tmp_path: Path) -> None:
    rows = [
        row(DAY_1, 1, "a", app="bot", session_id="s", max_output_tokens=500),
        row(DAY_1, 2, "rejected", block_hashes=None, **gone("rejected")),
        row(DAY_1, 3, "cancelled", block_hashes=None, finish_reason="cancelled", output_tokens=5, tenant="t"),
        row(DAY_1, 9, "b", app="bot", session_id="s", model="m"),
    ]
    known = World(tmp_path, {DAY_1: rows}).traffic(DAY_1).workload.arrivals
    assert known is not None
    assert known.learned.tolist() == [True, False, False, True]
    assert known.names.tolist() == ["bot", "m", "t"]
    assert [known.named[:, at].tolist() for at in range(len(NAMED))] == [
        [0, -1, -1, 0],
        [-1, -1, 2, -1],
        [-1, -1, -1, 1],
    ]
    numbers = {name: known.numbers[:, at].tolist() for at, name in enumerate(NUMBERS)}
    np.testing.assert_array_equal(numbers["max_output_tokens"], [500, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(numbers["turn"], [0, np.nan, np.nan, 1])
    np.testing.assert_array_equal(numbers["previous_output"], [np.nan, np.nan, np.nan, 101])
    np.testing.assert_allclose(numbers["hour"], [1 / 3600, 2 / 3600, 3 / 3600, 9 / 3600])


def test_a_pair_that_the_pool_does_not_have_is_free(tmp_path: Path) -> None:
    rows = [row(DAY_1, 1, "a", decode_node="d9/dp0"), row(DAY_1, 2, "b"), row(DAY_1, 3, "c", prefill_node=None)]
    placed = World(tmp_path, {DAY_1: rows}).traffic(DAY_1, forced=True).workload
    assert placed.forced_prefill.tolist() == [-1, 1, -1]
    assert placed.forced_decode.tolist() == [-1, 0, -1]


def test_blocks_are_dense_and_equal_where_prefixes_are(tmp_path: Path) -> None:
    rows = [
        row(DAY_1, 1, "a"),
        row(DAY_1, 2, "b", block_hashes=[2**63 + 1, 9, 10]),
        row(DAY_1, 3, "c", block_hashes=None),
    ]
    load = World(tmp_path, {DAY_1: rows}).traffic(DAY_1).workload
    assert load.block_offset.tolist() == [0, 3, 6, 6]
    assert load.block_ids.tolist() == [0, 1, 2, 0, 3, 4]


def test_warm_up_is_the_traffic_before_moved_up_to_the_window(tmp_path: Path) -> None:
    before = [row(DAY_1, at_s, f"a{at_s}") for at_s in (100, 150, 190, 200)]
    world = World(tmp_path, {DAY_1: before, DAY_2: [row(DAY_2, 50, "b"), row(DAY_2, 70, "c")]})
    load = world.traffic(DAY_2).workload
    # 60 s of traffic end with the last arrival of the day before; the longest request, 2.5 s, is left between.
    assert load.request_ids == ("a150", "a190", "a200", "b", "c")
    assert load.scored.tolist() == [False, False, False, True, True]
    gap_s = 2.5 + 1e-6
    np.testing.assert_allclose(load.arrival_ns / 1e9, [0, 40, 50, 50 + gap_s, 70 + gap_s], atol=2e-6)


def test_warm_up_takes_its_own_day_first_and_may_be_off(tmp_path: Path) -> None:
    days = {
        DAY_1: [row(DAY_1, 20, "a"), row(DAY_1, 100, "b")],
        DAY_2: [row(DAY_2, at_s, f"b{at_s}") for at_s in (10, 50, 80, 90)],
    }
    for name in ("on", "off"):
        (tmp_path / name).mkdir()
    world = World(tmp_path / "on", days)
    window = Window(DAY_2, midnight(DAY_2) + 80 * S, midnight(DAY_2) + 91 * S)
    load = window_traffic(world.lake, world.pool, world.inputs, window, LENGTHS).workload
    assert load.request_ids == ("b50", "b80", "b90")
    cold = World(tmp_path / "off", days, warm_up_s=0)
    assert cold.traffic(DAY_2).workload.request_ids == ("b10", "b50", "b80", "b90")


def test_a_class_that_nobody_described_is_an_error(tmp_path: Path) -> None:
    world = World(tmp_path, {DAY_1: [row(DAY_1, 1, "a", slo_class="gold")]})
    with pytest.raises(SettingsError, match="described in the settings") as caught:
        world.traffic(DAY_1)
    assert caught.value.value == "gold"
