"""Scrapes of GET /metrics, real ones and those with every oddity of the text format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.errors import SourceError
from features.readers.head import Head
from features.readers.prometheus_families import SAMPLES
from features.readers.prometheus_series import canonical, series_of, series_of_text
from features.readers.prometheus_text import READER, is_exposition, stem
from tests.features.logs import START_US
from tests.features.readers.reading import bad, batches
from tests.features.shared import real_data

START_MS = START_US // 1_000


def read(
    tmp_path: Path, text: str | bytes, **options: Any
) -> tuple[pl.DataFrame, dict[str, int], list[tuple[int, str]]]:
    """Rows, what was skipped by kind, and bad lines."""
    path = tmp_path / "p0.prom"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    read = batches(READER, path, **options)
    skipped: Counter[str] = Counter()
    for batch in read:
        skipped.update(batch.skipped)
    return pl.concat([batch.frame for batch in read]), {k: n for k, n in skipped.items() if n}, bad(read)


def values(frame: pl.DataFrame) -> dict[str, float]:
    return {f"{row['metric']}|{row['labels']}": row["value"] for row in frame.iter_rows(named=True)}


def test_the_real_scrape_of_vllm() -> None:
    path = real_data("engine-metrics-scrapes", "vllm_qwen2.5-coder-1.5b_metrics.prom")
    (batch,) = batches(READER, path)
    # 27 HELP and TYPE lines; swapped requests, CPU cache usage, two hit rates and LoRA feed nothing.
    assert {k: n for k, n in batch.skipped.items() if n} == {"comment": 27, "unused_family": 5}
    assert (batch.frame.height, batch.bad) == (24, [])
    assert batch.frame.height + sum(batch.skipped.values()) == 56
    held = values(batch.frame)
    assert held['vllm:cache_config_info|block_size="16",num_gpu_blocks="81767"'] == 1.0
    assert held["vllm:kv_cache_usage_perc|"] == 0.0
    assert held["vllm:prompt_tokens_total|"] == 148.0
    assert held["vllm:generation_tokens_total|"] == 955.0
    assert held['vllm:request_success_total|finished_reason="stop"'] == 4.0
    assert held["vllm:iteration_tokens_total_sum|"] == 1103.0
    assert held['vllm:iteration_tokens_total_bucket|le="40.0"'] == 998.0
    assert set(batch.frame["node"]) == {"vllm_qwen2.5-coder-1.5b_metrics/dp0"}
    assert set(batch.frame["observed_at_us"]) == {START_US}


def test_the_real_scrape_of_sglang() -> None:
    path = real_data("engine-metrics-scrapes", "sglang_llama-3.1-8b_metrics.prom")
    (batch,) = batches(READER, path)
    # token_usage, cache_hit_rate and gen_throughput follow from other families.
    assert {k: n for k, n in batch.skipped.items() if n} == {"comment": 22, "unused_family": 3}
    assert (batch.frame.height, batch.bad) == (67, [])
    assert batch.frame.height + sum(batch.skipped.values()) == 92
    held = values(batch.frame)
    assert held["sglang:num_running_reqs|"] == 162.0
    assert held["sglang:num_queue_reqs|"] == 2826.0
    assert held["sglang:num_used_tokens|"] == 123859.0
    assert held["sglang:prompt_tokens_total|"] == 8_128_902.0
    assert held["sglang:time_to_first_token_seconds_count|"] == 11008.0
    assert held['sglang:time_to_first_token_seconds_bucket|le="+Inf"'] == 11008.0
    # The old name of the time between tokens, in the form 4.950195e+06.
    assert held['sglang:inter_token_latency_seconds_bucket|le="0.1"'] == 4_950_195.0


def test_every_form_of_a_line(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "vllm:num_requests_running 1",
            'vllm:num_requests_running{engine="1"} 2 ',
            f'vllm:num_requests_running{{engine="2",}}\t3e0\t{START_MS + 1}',
            f'vllm:num_requests_running {{ engine = "3" , model_name="a\\"b}} 9 {{" }} 4 {START_MS + 2}',
            f'vllm:request_queue_time_seconds_bucket{{le="1.0",engine="4"}} 5 {START_MS / 1_000 + 0.25} # {{id="x"}} 1',
            f'vllm:num_requests_running{{engine="5"}} 6 {START_MS // 1_000 + 3}',
            'vllm:request_queue_time_seconds_bucket{le="+Inf",engine="6"} +Inf',
            "# EOF",
        ]
    )
    frame, skipped, wrong = read(tmp_path, text)
    assert wrong == []
    assert skipped == {"comment": 1}
    assert frame["node"].to_list() == [f"p0/dp{rank}" for rank in range(7)]
    assert frame["value"].to_list() == [1, 2, 3, 4, 5, 6, float("inf")]
    assert [at - START_US for at in frame["observed_at_us"]] == [0, 0, 1_000, 2_000, 250_000, 3_000_000, 0]
    assert frame["source_row"].to_list() == [1, 2, 3, 4, 5, 6, 7]
    assert frame["labels"].to_list() == ["", "", "", "", 'le="1.0"', "", 'le="+Inf"']


def test_what_gives_no_row_is_counted_by_kind(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "# TYPE x gauge",
            "",
            "vllm:num_requests_running NaN",
            "vllm:kv_cache_usage_perc -1",
            "vllm:num_requests_waiting -2",
            "process_cpu_seconds_total 5",
            "vllm:prompt_tokens_created 1.7e9",
            '{"a.quoted.name"} 5',
            "vllm:prompt_tokens_total -1",
        ]
    )
    frame, skipped, wrong = read(tmp_path, text)
    assert skipped == {"comment": 1, "unknown_value": 2, "unused_family": 3}
    assert wrong == []
    # -2 is no way to say unknown, and no counter says unknown by -1: both are kept and judged by their rules.
    assert values(frame) == {"vllm:num_requests_waiting|": -2.0, "vllm:prompt_tokens_total|": -1.0}


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running",
        "vllm:num_requests_running many",
        "vllm:num_requests_running 1 soon",
        "vllm:num_requests_running 1 5 5",
        "vllm:num_requests_running 1_000",
        "vllm:num_requests_running 1 1e300",
        'vllm:num_requests_running{engine="0" 1',
        "vllm:num_requests_running{engine=0} 1",
        'vllm:num_requests_running{engine="0"}{} 1',
        "1vllm 5",
    ],
)
def test_lines_of_no_form_are_bad(tmp_path: Path, line: str) -> None:
    frame, skipped, wrong = read(tmp_path, f"vllm:num_requests_waiting 2\n{line}\nvllm:num_requests_waiting 2\n")
    assert frame.height == 2
    assert (skipped, wrong) == ({}, [(2, "exposition")])


def test_text_that_is_none(tmp_path: Path) -> None:
    frame, _, wrong = read(
        tmp_path, b"vllm:num_requests_running 2\r\n\xff\xfe 1\r\n\r\nvllm:num_requests_waiting 1\r\n"
    )
    assert values(frame) == {"vllm:num_requests_running|": 2.0, "vllm:num_requests_waiting|": 1.0}
    assert frame["source_row"].to_list() == [1, 4]
    assert wrong == [(2, "utf8")]


def test_series_that_differ_in_dropped_labels_are_not_guessed(tmp_path: Path) -> None:
    text = (
        'sglang:num_running_reqs{tenant="a"} 1\nsglang:num_running_reqs{tenant="b"} 2\n'
        'sglang:num_queue_reqs{tenant="a"} 7\n'
        "vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.5\n"
    )
    frame, skipped, _ = read(tmp_path, text)
    assert skipped == {"ambiguous_series": 2}
    # The old and the current name of one family are one sample twice: the lake keeps the first.
    assert frame["metric"].to_list() == ["sglang:num_queue_reqs", *["vllm:kv_cache_usage_perc"] * 2]
    assert "tenant" not in frame.write_json()


def test_samples_without_a_time_need_one(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="--starts-at"):
        read(tmp_path, "vllm:num_requests_running 1\n", starts_at_us=None)
    frame, _, _ = read(tmp_path, f"vllm:num_requests_running 1 {START_MS}\n", starts_at_us=None)
    assert frame["observed_at_us"].to_list() == [START_US]


def test_names_of_a_family() -> None:
    def stored(name: str) -> str:
        return SAMPLES[name][1]

    assert stored("sglang_num_running_reqs") == stored("sglang:num_running_reqs") == "sglang:num_running_reqs"
    assert stored("vllm:num_preemptions") == stored("vllm:num_preemptions_total") == "vllm:num_preemptions_total"
    assert stored("vllm:time_per_output_token_seconds_sum") == "vllm:inter_token_latency_seconds_sum"
    assert stored("sglang_disagg_prefill_inflight_queue_reqs") == "sglang:num_prefill_inflight_queue_reqs"
    # The gauge of older versions is the last transfer, the histogram of current ones all of them.
    assert stored("sglang:kv_transfer_latency_ms") == "sglang:last_kv_transfer_latency_ms"
    assert stored("sglang:kv_transfer_latency_ms_sum") == "sglang:kv_transfer_latency_ms_sum"
    assert stored("inference_pool_per_pod_queue_size") == "llm_d_epp_per_endpoint_queue_size"
    assert stored("dynamo_component_kvstats_total_blocks") == "dynamo_component_total_blocks"
    assert "vllm:prompt_tokens_created" not in SAMPLES


@pytest.mark.parametrize(
    ("head", "node", "labels"),
    [
        ('vllm:num_requests_running{engine="3",instance="10.0.0.1:8000",pod="p"}', ("10.0.0.1:8000", "/dp3"), ""),
        ('sglang:num_running_reqs{dp_rank="12",tp_rank="0",pod="p"}', ("p", "/dp12"), 'tp_rank="0"'),
        ('smg_engine_running_requests{worker="grpc://d0:3",dp_rank="1",instance="smg:9"}', ("d0:3", "/dp1"), ""),
        ('smg_pd_ttft_seconds_sum{model="m",instance="smg:9"}', ("smg:9", ""), 'model="m"'),
        ('dynamo_frontend_worker_active_decode_blocks{worker_id="7",dp_rank="0",worker_type="decode"}',
         ("7", "/dp0"), 'worker_type="decode"'),
        ('llm_d_epp_per_endpoint_queue_size{model_server_endpoint="ns/pod-1",name="pool"}', ("ns", "/dp0"), ""),
        ('llm_d_epp_scheduler_attempts_total{status="failure"}', (None, ""), 'status="failure"'),
    ],
)  # fmt: skip
def test_the_node_is_what_the_metric_is_about(head: str, node: tuple[str | None, str], labels: str) -> None:
    series = series_of_text(head)
    assert (series.kind, (series.worker, series.suffix), series.labels) == ("", node, labels)


def test_labels_have_one_form() -> None:
    labels = {"stage": 'a"b\\c\nd', "le": "+Inf"}
    assert canonical(labels) == 'le="+Inf",stage="a\\"b\\\\c\\nd"'
    series = series_of("sglang:per_stage_req_latency_seconds_bucket", labels)
    text = 'sglang:per_stage_req_latency_seconds_bucket{stage="a\\"b\\\\c\\nd",le="+Inf"'
    assert series == series_of_text(text) == series_of_text(text + "}")
    assert series.labels == canonical(labels)


def test_a_name_without_suffixes() -> None:
    assert stem("a/b/d0.prom.gz") == "d0"
    assert stem("10.0.0.1:8000.txt") == "10.0.0.1:8000"
    assert stem("vllm-0.9") == "vllm-0.9"


def test_recognised_by_content() -> None:
    assert is_exposition("# HELP a b\n# TYPE a counter\na_total 5\n")
    assert is_exposition('up{job="x"} 1 1767571200000\n')
    for text in (
        "hello 5\nworld 6\n",
        '{"a": 1}\n',
        "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.97,5\n",
        "",
        "a: 1\n",
    ):
        assert not is_exposition(text)
        assert READER.sniff(Head(text)) == ""
