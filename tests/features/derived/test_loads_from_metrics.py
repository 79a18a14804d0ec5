"""State of nodes from scrapes of their metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.readers.prometheus_text import READER
from tests.features.derived.running import SECOND, derived, sample
from tests.features.logs import START_US
from tests.features.readers.reading import batches
from tests.features.shared import real_data


def loads(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = derived("loads_from_metrics", "metric_samples", rows, "node_loads").drop("source")
    return [{name: value for name, value in row.items() if value is not None} for row in found.iter_rows(named=True)]


def of_file(path: Path) -> list[dict[str, Any]]:
    return [row for batch in batches(READER, path) for row in batch.frame.drop("source_row").iter_rows(named=True)]


def config(at_s: float, blocks: str = "1001", size: str = "16", node: str = "n0/dp0") -> dict[str, Any]:
    return sample(at_s, "vllm:cache_config_info", 1, f'block_size="{size}",num_gpu_blocks="{blocks}"', node)


def test_the_real_scrapes() -> None:
    vllm = loads(of_file(real_data("engine-metrics-scrapes", "vllm_qwen2.5-coder-1.5b_metrics.prom")))
    assert vllm == [
        {
            "observed_at_us": START_US, "node": "vllm_qwen2.5-coder-1.5b_metrics/dp0", "block_tokens": 16,
            "usable_blocks": 81_766, "active_blocks": 0, "free_blocks": 81_766, "waiting_requests": 0,
            "running_requests": 0, "generated_tokens": 955, "preemptions": 0,
        }
    ]  # fmt: skip
    sglang = loads(of_file(real_data("engine-metrics-scrapes", "sglang_llama-3.1-8b_metrics.prom")))
    assert sglang == [
        {
            # Its capacity is not exposed: how much is free is unknown.
            "observed_at_us": START_US, "node": "sglang_llama-3.1-8b_metrics/dp0", "block_tokens": 1,
            "active_blocks": 123_859, "waiting_requests": 2_826, "running_requests": 162,
        }
    ]  # fmt: skip


def test_vllm_counts_blocks_of_a_known_size() -> None:
    (row,) = loads(
        [
            config(0),
            sample(0, "vllm:kv_cache_usage_perc", 0.251),
            sample(0, "vllm:num_requests_running", 7),
            sample(0, "vllm:num_requests_waiting", 2),
            sample(0, "vllm:generation_tokens_total", 1234),
            sample(0, "vllm:num_preemptions_total", 3),
            sample(0, "vllm:time_to_first_token_seconds_bucket", 99, 'le="1.0"'),
        ]
    )
    assert {name: row[name] for name in ("block_tokens", "usable_blocks", "active_blocks", "free_blocks")} == {
        "block_tokens": 16,
        "usable_blocks": 1_000,
        "active_blocks": 251,
        "free_blocks": 749,
    }
    assert (row["running_requests"], row["waiting_requests"]) == (7, 2)
    assert (row["generated_tokens"], row["preemptions"]) == (1_234, 3)
    assert not {"role", "reclaimable_blocks", "prefill_busy_us"} & set(row)


@pytest.mark.parametrize(
    ("configs", "usable"),
    [
        ([], [None, None, None]),
        ([config(2)], [1_000, 1_000, 1_000]),  # the node never had another
        ([config(1), config(3, blocks="501")], [None, 1_000, 500]),  # before the first of two it is unknown
        ([config(1, size="None")], [None, None, None]),
        ([config(1, node="n1/dp0")], [None, None, None]),
    ],
)
def test_a_configuration_holds_until_the_next(configs: list[dict[str, Any]], usable: list[int | None]) -> None:
    scrapes = [sample(at_s, "vllm:kv_cache_usage_perc", 0.5) for at_s in (0.5, 1.5, 3.5)]
    rows = {row["observed_at_us"]: row for row in loads([*configs, *scrapes]) if "active_blocks" in row}
    found = [rows.get(START_US + round(at_s * SECOND), {}).get("usable_blocks") for at_s in (0.5, 1.5, 3.5)]
    assert found == usable


def test_blocks_without_a_number_of_them_stay_unknown() -> None:
    (row,) = loads([config(0, blocks="None"), sample(0, "vllm:kv_cache_usage_perc", 0.5)])
    assert row["block_tokens"] == 16
    assert not {"usable_blocks", "active_blocks", "free_blocks"} & set(row)


def sglang(role: str, **gauges: float) -> list[dict[str, Any]]:
    return [sample(0, f"sglang:{name}", value, f'engine_type="{role}",tp_rank="0"') for name, value in gauges.items()]


PD_QUEUES = {
    "num_prefill_bootstrap_queue_reqs": 3, "num_prefill_inflight_queue_reqs": 2, "num_decode_prealloc_queue_reqs": 0,
    "num_decode_transfer_queue_reqs": 0,
}  # fmt: skip


def test_the_prefill_side_of_sglang() -> None:
    rows = sglang(
        "prefill", max_total_num_tokens=10_000, kv_used_tokens=4_000, num_used_tokens=4_500, kv_available_tokens=5_000,
        kv_evictable_tokens=900, num_queue_reqs=5, num_running_reqs=1, last_kv_transfer_speed_gb_s=2,
        last_kv_transfer_latency_ms=12.5, **PD_QUEUES,
    )  # fmt: skip
    (row,) = loads(rows)
    assert row["role"] == "prefill"
    assert (row["block_tokens"], row["usable_blocks"], row["active_blocks"]) == (1, 10_000, 4_000)
    # Told apart: what is free, and what would be if its prefixes were evicted.
    assert (row["free_blocks"], row["reclaimable_blocks"]) == (5_000, 900)
    # In the queue or waiting for a D: both wait; two are on their way.
    assert (row["waiting_requests"], row["bootstrap_requests"], row["transferring_requests"]) == (8, 3, 2)
    assert (row["last_transfer_bytes_per_s"], row["last_transfer_us"]) == (2 * 2**30, 12_500)
    assert not {"receiving_requests", "prealloc_requests", "inflight_blocks"} & set(row)


def test_the_decode_side_of_sglang() -> None:
    queues = {**dict.fromkeys(PD_QUEUES, 0), "num_decode_prealloc_queue_reqs": 4, "num_decode_transfer_queue_reqs": 6}
    rows = sglang("decode", num_used_tokens=10, max_total_num_tokens=100, num_queue_reqs=1, **queues)
    rows += [
        sample(0, "sglang:realtime_tokens_total", 700, 'engine_type="decode",mode="decode",tp_rank="0"'),
        sample(0, "sglang:realtime_tokens_total", 9, 'engine_type="decode",mode="prefill_cache",tp_rank="0"'),
        sample(0, "sglang:num_retracted_requests_total", 5, 'engine_type="decode",tp_rank="0"'),
    ]
    (row,) = loads(rows)
    assert row["role"] == "decode"
    assert (row["free_blocks"], row["waiting_requests"]) == (90, 5)
    assert (row["prealloc_requests"], row["receiving_requests"]) == (4, 6)
    assert (row["generated_tokens"], row["preemptions"]) == (700, 5)
    assert not {"bootstrap_requests", "transferring_requests", "reclaimable_blocks"} & set(row)


def test_ranks_and_priorities_are_not_summed() -> None:
    rows = [
        *(sample(0, "sglang:num_running_reqs", 10 + tp, f'pp_rank="0",tp_rank="{tp}"') for tp in range(8, 16)),
        sample(0, "sglang:num_running_reqs", 99, 'pp_rank="1",tp_rank="8"'),
        sample(0, "sglang:num_queue_reqs", 6, 'priority="",tp_rank="8"'),
        sample(0, "sglang:num_queue_reqs", 4, 'priority="0",tp_rank="8"'),
        sample(0, "sglang:num_queue_reqs", 2, 'priority="1",tp_rank="8"'),
        sample(0, "sglang:num_used_tokens", 5),
    ]
    (row,) = loads(rows)
    assert (row["running_requests"], row["waiting_requests"], row["active_blocks"]) == (18, 6, 5)


def test_loads_in_the_text_format() -> None:
    """GET /v1/loads?format=prometheus: num_waiting_reqs holds the queues, the counters come as gauges."""
    names = {
        "num_waiting_reqs": 9, "num_prefill_inflight_queue_reqs": 2, "num_prefill_bootstrap_queue_reqs": 3,
        "num_waiting_uncached_tokens": 800, "total_prefill_busy_us": 5_000, "total_prefill_uncached_tokens": 70,
        "max_total_num_tokens": 0,
    }  # fmt: skip
    (row,) = loads([sample(0, f"sglang:{name}", value) for name, value in names.items()])
    assert (row["waiting_requests"], row["bootstrap_requests"], row["waiting_prompt_tokens"]) == (7, 3, 800)
    assert (row["prefill_busy_us"], row["prefill_computed_tokens"]) == (5_000, 70)
    assert "usable_blocks" not in row


def test_routers_say_nothing_about_blocks() -> None:
    rows = [
        sample(0, "smg_engine_running_requests", 5),
        sample(0, "dynamo_component_total_blocks", 500),
        sample(0, "llm_d_epp_per_endpoint_queue_size", 5),
    ]
    assert loads(rows) == []
    assert derived("loads_from_metrics", "metric_samples", [], "node_loads").is_empty()


def test_each_time_and_node_is_a_row() -> None:
    rows = [sample(at_s, "sglang:num_running_reqs", at_s, node=f"n{n}/dp0") for at_s in range(3) for n in range(2)]
    found = pl.DataFrame(loads(rows))
    assert found.select("node", "running_requests").rows() == [(f"n{n}/dp0", at) for at in range(3) for n in range(2)]
