"""Transfers and steps from differences of metrics."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.derived.running import SECOND, derived, sample
from tests.features.logs import START_US


def transfers(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = derived("transfers_from_metrics", "metric_samples", rows, "transfer_totals")
    return [
        ((row["observed_at_us"] - START_US) / SECOND, row["interval_us"] / SECOND, row["transfers"], row["bytes"],
         row["busy_us"], row["failures"])
        for row in found.iter_rows(named=True)
    ]  # fmt: skip


def nixl(at_s: float, count: float, seconds: float, size: float, failed: float | None = None) -> list[dict[str, Any]]:
    rows = [
        sample(at_s, "vllm:nixl_xfer_time_seconds_count", count),
        sample(at_s, "vllm:nixl_xfer_time_seconds_sum", seconds),
        sample(at_s, "vllm:nixl_xfer_time_seconds_bucket", count, 'le="+Inf"'),
        sample(at_s, "vllm:nixl_bytes_transferred_count", count),
        sample(at_s, "vllm:nixl_bytes_transferred_sum", size),
    ]
    return rows if failed is None else [*rows, sample(at_s, "vllm:nixl_num_failed_transfers_total", failed)]


def test_transfers_of_vllm_by_hand() -> None:
    rows = [
        *nixl(0, 10, 1.0, 1e9, 0),
        *nixl(15, 14, 1.5, 3e9, 1),
        *nixl(30, 14, 1.5, 3e9, 1),
        *nixl(45, 2, 0.1, 5e8, 0),  # restarted: counting starts anew
        *nixl(60, 3, 0.2, 6e8, 0),
        *nixl(90, 5, 0.25, 9e8),  # its failures are not told
    ]
    assert transfers(rows) == [
        (15, 15, 4, 2e9, pytest.approx(500_000), 1),
        (30, 15, 0, 0.0, 0.0, 0),
        (60, 15, 1, 1e8, pytest.approx(100_000), 0),
        (90, 30, 2, 3e8, pytest.approx(50_000), None),
    ]


def test_transfers_of_mooncake_and_of_each_node() -> None:
    rows = [
        sample(at_s, f"vllm:mooncake_{name}", value * at_s, node=f"{node}/dp0")
        for at_s in (1, 2)
        for node in ("d0", "d1")
        for name, value in (
            ("xfer_time_seconds_count", 3), ("xfer_time_seconds_sum", 0.5), ("bytes_transferred_sum", 1e6),
            ("num_failed_transfers_total", 1), ("num_failed_recvs_total", 2), ("num_kv_expired_reqs_total", 9),
        )
    ]  # fmt: skip
    assert transfers(rows) == [(2, 1, 3, 1e6, 500_000.0, 3)] * 2


def test_transfers_of_sglang_are_those_of_one_rank_in_its_units() -> None:
    rows = [
        sample(at_s, f"sglang:{name}", value * at_s + tp, f'engine_type="prefill",tp_rank="{tp}"')
        for at_s in (1, 2)
        for tp in range(4)
        for name, value in (
            ("kv_transfer_latency_ms_count", 3), ("kv_transfer_latency_ms_sum", 40), ("kv_transfer_total_mb_sum", 8),
            ("kv_transfer_total_mb_count", 3), ("kv_transfer_speed_gb_s_sum", 7), ("num_transfer_failed_reqs_total", 1),
            ("num_bootstrap_failed_reqs_total", 6),
        )
    ]  # fmt: skip
    assert transfers(rows) == [(2, 1, 3, 8 * 2**20, 40_000.0, 1)]


def steps(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = derived("steps_from_metrics", "metric_samples", rows, "steps")
    assert found["n_steps"].null_count() == found.height
    return [
        ((row["observed_at_us"] - START_US) / SECOND, row["phase"], row["busy_us"], row["new_tokens"])
        for row in found.iter_rows(named=True)
    ]


def work(at_s: float, tp: int = 0, **values: float) -> list[dict[str, Any]]:
    """Seconds by category and tokens by mode, cumulative."""
    rows = []
    for name, value in values.items():
        kind = "category" if name in ("extend", "decode_pass", "mixed") else "mode"
        family = "forward_execution_seconds" if kind == "category" else "realtime_tokens"
        family, mode = ("prefill_effective_tokens", "input") if name == "input" else (family, name)
        label = f'{kind}="{mode.removesuffix("_pass")}",tp_rank="{tp}"'
        rows.append(sample(at_s, f"sglang:{family}_total", value, label))
    return rows


def test_steps_of_sglang_by_hand() -> None:
    rows = [
        *work(0, extend=1.0, decode_pass=2.0, prefill_compute=100, decode=50),
        *work(15, extend=1.5, decode_pass=2.0, prefill_compute=1_100, decode=50, prefill_cache=9_999),
        *work(30, extend=1.5, decode_pass=4.25, prefill_compute=1_100, decode=950),
        *work(45, extend=2.0, decode_pass=5.0, prefill_compute=1_200, decode=990, mixed=0.5),  # whose is it?
        *work(60, extend=0.1, decode_pass=0.1, prefill_compute=10, decode=5, mixed=0.5),  # restarted
        *work(75, extend=0.2, decode_pass=0.1, prefill_compute=20, decode=5, mixed=0.5),
    ]
    assert steps(rows) == [
        (15, "prefill", 500_000, 1_000),
        (30, "decode", 2_250_000, 900),
        (75, "prefill", 100_000, 10),
    ]


def test_ranks_do_the_same_passes() -> None:
    rows = [
        row
        for at_s in (0, 10)
        for tp in (3, 1, 2)
        for row in work(at_s, tp, decode_pass=at_s * 0.1, decode=at_s * 10.0)
    ]
    assert steps(rows) == [(10, "decode", 1_000_000, 100)]


def test_tokens_without_recounts_where_work_is_not_counted() -> None:
    rows = [*work(0, extend=0.0, input=0), *work(10, extend=1.0, input=300)]
    assert steps(rows) == [(10, "prefill", 1_000_000, 300)]


def test_without_samples_there_is_nothing() -> None:
    assert transfers([]) == []
    assert steps([]) == []
    assert transfers(nixl(0, 1, 1, 1)) == []
