"""Node tables, load windows and speeds, from numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

from features.diagnosis.rules_nodes import slow_nodes, speeds
from features.diagnosis.series import autocorrelation, imbalance
from tests.features.diagnosis.tiny import only, request, sample, tables


def test_p_busy_and_back_pressured(tmp_path: Path) -> None:
    rows = [
        request(0, p_start=0, p_end=30, t_start=30, t_end=40, prefill_node="p0", prefill_cached_tokens=200),
        request(0, p_start=20, p_end=50, t_start=70, t_end=80, prefill_node="p0", prefill_cached_tokens=0),
        request(0, p_start=60, p_end=80, t_start=90, t_end=100, end=100, prefill_node="p0", prefill_cached_tokens=0),
    ]
    got = only(tables(tmp_path, requests=rows)["prefill_nodes"], node="p0")
    # Of 100 ms: computing 0–50 and 60–80; queued 0–60; finished KV waits 50–70 and 80–90.
    assert got["busy_log_frac"] == pytest.approx(0.70)
    assert got["busy_frac"] == got["busy_log_frac"]
    assert got["busy_counter_frac"] is None
    assert got["queued_frac"] == pytest.approx(0.60)
    assert got["awaiting_frac"] == pytest.approx(0.30)
    assert got["awaiting_tokens"] == pytest.approx(1000 * (20 + 10) / 100)
    assert got["awaiting_kv_frac"] is None  # nobody told how large p0 is
    assert got["new_tokens"] == 2800


def test_counters_are_believed_over_intervals(tmp_path: Path) -> None:
    rows = [request(0, p_start=0, p_end=10, t_start=10, t_end=11, end=4000, prefill_node="p0")]
    loads = [
        sample(0, "p0", "prefill", prefill_busy_us=0, usable_blocks=1000, active_blocks=500),
        sample(1000, "p0", "prefill", prefill_busy_us=400_000, usable_blocks=1000, active_blocks=900),
        sample(2000, "p0", "prefill", prefill_busy_us=100_000, usable_blocks=1000, active_blocks=900),  # restarted
        sample(3000, "p0", "prefill", prefill_busy_us=300_000, usable_blocks=1000, active_blocks=500),
    ]
    got = only(tables(tmp_path, requests=rows, loads=loads)["prefill_nodes"], node="p0")
    assert got["busy_counter_frac"] == pytest.approx((0.4 + 0.2) / 2)
    assert got["above_high_water_frac"] == pytest.approx(2 / 3)  # the last sample stands for no time
    assert got["awaiting_kv_frac"] == pytest.approx(0.0)


def test_d_above_high_water_with_growth_and_reclaimable(tmp_path: Path) -> None:
    rows = [request(0, first=10, end=4000, decode_node="d0", preemptions=1)]
    more = {"usable_blocks": 100, "inflight_blocks": 10}
    loads = [
        sample(0, "d0", "decode", **more, active_blocks=50, generated_tokens=0, reclaimable_blocks=40),
        sample(1000, "d0", "decode", **more, active_blocks=80, generated_tokens=30, reclaimable_blocks=5),
        sample(2000, "d0", "decode", **more, active_blocks=85, generated_tokens=40, reclaimable_blocks=3),
        sample(3000, "d0", "decode", **more, active_blocks=60, generated_tokens=45, reclaimable_blocks=30),
    ]
    found = tables(tmp_path, requests=rows, loads=loads)
    got = only(found["decode_nodes"], node="d0")
    assert got["committed_mean_frac"] == pytest.approx((0.6 + 0.9 + 0.95) / 3)
    assert got["above_frac"] == pytest.approx(2 / 3)
    assert got["growth_blocks_per_s"] == pytest.approx(45 / 3)
    assert got["growth_above_blocks_per_s"] == pytest.approx((30 + 10) / 2)
    assert got["reclaimable_above_frac"] == pytest.approx(0.04)
    assert got["preemptions"] == 1
    assert got["allocation_failures"] is None
    assert found["pool_high_water"][0]["committed_mean_frac"] == pytest.approx((0.6 + 0.9 + 0.95 + 0.7) / 4)


def test_imbalance_of_nodes_workers_and_ranks() -> None:
    loads = {"w0/dp0": 30.0, "w0/dp1": 10.0, "w1/dp0": 20.0, "w1/dp1": 20.0}
    windows = [
        {"role": "decode", "metric": "running_tokens", "window_us": k * 10_000_000, "node": node, "value": value}
        for k in range(2)
        for node, value in loads.items()
    ]
    rows = {row["level"]: row for row in imbalance(pl.DataFrame(windows), 10.0)}
    assert rows["node"]["cv_mean"] == pytest.approx(math.sqrt(50) / 20)  # deviations 10, -10, 0, 0
    assert rows["node"]["max_over_mean"] == pytest.approx(1.5)
    assert rows["node"]["persistent_frac"] == pytest.approx(1.0)
    assert rows["worker"]["cv_mean"] == 0
    assert rows["rank"]["cv_mean"] == pytest.approx(math.sqrt((0.25 + 0.25) / 4))
    assert rows["node"]["autocorrelation"] is None  # two windows


def test_load_without_telemetry_is_what_nodes_were_given(tmp_path: Path) -> None:
    common = {"output_tokens": 500, "first": 1}
    rows = [
        request(0, decided=0, end=45_000, decode_node="d0", **common),
        request(15_000, decided=15_000, end=45_000, decode_node="d0", **common),
        request(0, decided=0, end=45_000, decode_node="d1", **common),
    ]
    got = only(tables(tmp_path, requests=rows)["imbalance"], role="decode", metric="given_tokens")
    # At 10 s both have 1,500 tokens; from 20 to 40 s d0 has 3,000.
    assert got["windows"] == 4
    assert got["cv_mean"] == pytest.approx((0 + 3 * (750 / 2250)) / 4)


def test_autocorrelation_shows_a_swing() -> None:
    import numpy as np

    wave = np.array([1.0, 1.0, -1.0, -1.0] * 8)
    got = autocorrelation(np.stack([wave, -wave], axis=1))
    assert got is not None
    assert got[1] == pytest.approx(-1.0)  # half a period later it is the opposite
    assert got[3] == pytest.approx(1.0)
    assert autocorrelation(np.zeros((8, 2))) is None


def test_idle_windows_and_single_nodes_have_no_imbalance() -> None:
    one = [{"role": "decode", "metric": "m", "window_us": 0, "node": "d0", "value": 5.0}]
    idle = [{"role": "decode", "metric": "m", "window_us": 0, "node": f"d{k}", "value": 0.0} for k in range(2)]
    assert imbalance(pl.DataFrame(one), 10.0) == []
    assert imbalance(pl.DataFrame(idle), 10.0) == []


def test_prefill_speed_compares_runs_of_one_size(tmp_path: Path) -> None:
    rows = []
    for k in range(60):
        for node, ms in (("p0", 10.0), ("p1", 10.0), ("p2", 15.0)):
            at = 1000.0 * k
            rows.append(
                request(at, p_start=at, p_end=at + ms + 0.01 * (k % 3), prefill_node=node, prefill_cached_tokens=0)
            )
    found = tables(tmp_path, requests=rows)
    factors = speeds(found["prefill_speed"])
    assert factors["p2"].value == pytest.approx(1.5, rel=0.01)
    assert factors["p0"].value == pytest.approx(10 / 12.25, rel=0.01)  # its peers' median lies between 10 and 15
    (finding,) = slow_nodes(found)
    assert (finding.name, finding.subject, finding.n) == ("slow_prefill_node", "p2", 60)


def test_prompts_that_share_steps_are_one_run(tmp_path: Path) -> None:
    rows = []
    for k in range(2):
        for node in ("p0", "p1"):
            at = 1000.0 * k
            rows.append(request(at, p_start=at, p_end=at + 20, prefill_node=node, prefill_cached_tokens=0))
            rows.append(request(at, p_start=at + 10, p_end=at + 30, prefill_node=node, prefill_cached_tokens=500))
            rows.append(request(at, p_start=at + 30, p_end=at + 40, prefill_node=node, prefill_cached_tokens=0))
    # Two runs a second: the first two prompts overlap, the third starts when they end.
    assert [row["rows"] for row in tables(tmp_path, requests=rows)["prefill_speed"]] == [4, 4]


def test_decode_speed_from_moments(tmp_path: Path) -> None:
    loads = []
    for node, step_us in (("d0", 20_000.0), ("d1", 20_000.0), ("d2", 28_000.0)):
        loads += [
            sample(
                1000 * k, node, "decode", running_tokens=10_000,
                decode_moments=[40.0 * k, 400.0 * k, 40 * k * step_us, 0.0, 0.0, 400.0 * k],
            )
            for k in range(40)
        ]  # fmt: skip
    rows = [request(0, first=10, end=40_000, decode_node="d0")]
    found = tables(tmp_path, requests=rows, loads=loads)
    factor = speeds(found["decode_speed"])["d2"]
    assert factor.value == pytest.approx(1.4)
    (finding,) = slow_nodes(found)
    assert (finding.name, finding.subject) == ("slow_decode_node", "d2")


def test_few_observations_name_nobody() -> None:
    rows = [{"node": f"d{k}", "rows": 29, "effect": 0.5 * (k == 2), "mad": 0.01} for k in range(3)]
    assert slow_nodes({"decode_speed": rows, "prefill_speed": rows}) == []
    assert speeds(rows[:1]) == {}
