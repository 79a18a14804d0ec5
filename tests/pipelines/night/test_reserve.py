"""The safety reserve: growth that no booking foresaw."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl

from features.lake import Lake
from pipelines.night.inputs import select_inputs
from pipelines.night.reserve import safety_reserve
from pipelines.settings import Pool
from policies.lengths import constant_length
from tests.pipelines.night.emulated import write_settings
from tests.pipelines.night.test_inputs import SIZED
from tests.pipelines.night.test_workloads import DAY_1, S, midnight, row

LENGTHS = replace(constant_length(0.0), rows=((70.0, 140.0),))
SECONDS = 400


def reserve(
    folder: Path, grown: int, *, requests: list[dict[str, Any]] | None = None, pool: Pool | None = None
) -> float:
    """Of four days on which the first D grows by `grown` blocks of 256 tokens every second."""
    lake = Lake(folder / "lake")
    for k in range(4):
        day = DAY_1 + timedelta(days=k)
        rows = [row(day, at_s, f"{k}-{at_s}", decode_node="d1/dp0") for at_s in (0, SECONDS)]
        rows += requests or []
        lake.write(
            "requests",
            day,
            "small",
            pl.DataFrame([r for r in rows if r["arrived_at_us"] // (86_400 * S) == midnight(day) // (86_400 * S)]),
            sources={},
        )
        loads = [
            {"observed_at_us": midnight(day) + at_s * S, "node": "d0/dp0", "role": "decode", "block_tokens": 1,
             "usable_blocks": 10**7, "active_blocks": 256 * grown * at_s, "inflight_blocks": 0}
            for at_s in range(SECONDS)
        ]  # fmt: skip
        lake.write("node_loads", day, "small", pl.DataFrame(loads), sources={})
    pool = pool or write_settings(folder, text=SIZED).pool("small")
    return safety_reserve(lake, pool, select_inputs(lake, pool, DAY_1 + timedelta(days=3)), LENGTHS)


def test_unbooked_growth_is_reserved_over_period_and_delay(tmp_path: Path) -> None:
    # A sample is used for 1.05 s, the first sample that is as late comes 2 s after it.
    assert reserve(tmp_path, 3) == 6.0


def test_booked_growth_is_not(tmp_path: Path) -> None:
    # One prompt of 800 tokens a second: with 140 booked output tokens ceil(940 / 256) = 4 blocks a second.
    booked = [
        row(
            DAY_1 + timedelta(days=k),
            at_s + 0.5,
            f"b{k}-{at_s}",
            transfer_started_at_us=midnight(DAY_1 + timedelta(days=k)) + at_s * S + S // 2,
        )
        for k in range(4)
        for at_s in range(SECONDS)
    ]
    assert reserve(tmp_path, 4, requests=booked) == 0.0


def test_live_routers_need_none(tmp_path: Path) -> None:
    pool = write_settings(tmp_path, text=SIZED).pool("small")
    assert reserve(tmp_path, 3, pool=replace(pool, router=replace(pool.router, period_ns=0, delay_ns=0))) == 0.0
