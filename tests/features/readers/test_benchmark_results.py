"""Readers of benchmark results: multi-round-qa, and LLMServingSim's runs, their load, and workloads."""

from __future__ import annotations

import zipfile
from pathlib import Path

import polars as pl
import pytest

from features.readers import (
    llmservingsim_bench,
    llmservingsim_timeseries,
    llmservingsim_workload,
    multi_round_qa,
)
from tests.contracts.samples.llmservingsim_bench import run
from tests.contracts.samples.llmservingsim_timeseries import HEADER as LOAD_HEADER
from tests.contracts.samples.llmservingsim_timeseries import second
from tests.contracts.samples.llmservingsim_workload import sent
from tests.contracts.samples.multi_round_qa import HEADER, row
from tests.features.logs import START_US, lines
from tests.features.readers.reading import batches, rows
from tests.features.shared import real_data

SECOND_US = 1_000_000


def test_a_result_of_multi_round_qa(tmp_path: Path) -> None:
    path = tmp_path / "naive_output_4.1.csv"
    path.write_bytes(HEADER + row(9))
    (found,) = rows(multi_round_qa.READER, path).to_dicts()
    launched = START_US + 9 * SECOND_US
    assert found == {
        "request_id": "naive_output_4.1-000000002",
        "pool": "a",
        "arrived_at_us": launched,
        "session_id": "naive_output_4.1-2",
        "prompt_tokens": 21_073,
        "output_tokens": 100,
        "first_token_at_us": launched + 437_500,
        "finished_at_us": launched + 1_687_500,
        "source_row": 2,
    }


def test_a_part_of_a_token_stays_wrong(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(HEADER + row(0, prompt=21_073.5) + row(1, prompt=1e30) + row(2, prompt=""))
    assert rows(multi_round_qa.READER, path)["prompt_tokens"].to_list() == [-2, -2, None]


def test_a_run_of_llmservingsim(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    # The engine's clock is 500 s at the start; the second request waits 0.25 s before it is queued.
    late = {name: run(1)[name] + 0.25 for name in ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")}
    path.write_bytes(lines(run(0), run(1) | late))
    frame = rows(llmservingsim_bench.READER, path)
    assert frame.to_dicts()[0] == {
        "request_id": f"bench-0-{START_US}",
        "pool": "a",
        "arrived_at_us": START_US,
        "prompt_tokens": 2_358,
        "output_tokens": 531,
        "prefill_started_at_us": START_US + 125_000,
        "first_token_at_us": START_US + 500_000,
        "finished_at_us": START_US + 8_250_000,
        "source_row": 1,
    }
    assert frame["first_token_at_us"][1] == START_US + SECOND_US + 750_000


def test_a_damaged_clock_does_not_move_the_others(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(lines(run(0), run(1), run(2), run(3, queued_ts=5.0), run(4, queued_ts=None)))
    frame = rows(llmservingsim_bench.READER, path)
    assert (frame["prefill_started_at_us"] - frame["arrived_at_us"]).to_list() == [125_000] * 5
    path.write_bytes(lines(run(0, queued_ts=None)))
    assert rows(llmservingsim_bench.READER, path)["first_token_at_us"].to_list() == [None]


def test_a_workload_of_llmservingsim(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.jsonl"
    path.write_bytes(lines(sent(0), sent(2)))
    frame = rows(llmservingsim_workload.READER, path)
    assert frame.to_dicts()[0] == {
        "request_id": "sharegpt-000000001",
        "pool": "a",
        "arrived_at_us": START_US + 46_926,
        "prompt_tokens": 2_358,
        "output_tokens": 531,
        "source_row": 1,
    }


def test_the_load_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "timeseries.csv"
    path.write_bytes(LOAD_HEADER + second(0) + second(1))
    assert rows(llmservingsim_timeseries.READER, path).to_dicts()[1] == {
        "observed_at_us": START_US + 2 * SECOND_US,
        "node": "timeseries",
        "role": "colocated",
        "block_tokens": 16,
        "waiting_requests": 1,
        "running_requests": 5,
        "source_row": 3,
    }


def test_the_real_results_of_multi_round_qa(tmp_path: Path) -> None:
    with zipfile.ZipFile(real_data("aibrix-router-bench", "benchmark_output_v0.3.0_20250519.zip")) as packed:
        packed.extractall(tmp_path)
    files = sorted(tmp_path.rglob("*.csv"))
    assert len(files) == 66
    frames = [rows(multi_round_qa.READER, path) for path in files]
    assert (min(frame.height for frame in frames), max(frame.height for frame in frames)) == (11, 455)
    frame = pl.concat(frames)
    assert frame.height == 15_120
    assert frame["request_id"].n_unique() == 15_120
    assert frame.filter(pl.col("finished_at_us") < pl.col("first_token_at_us")).is_empty()


def test_the_real_runs_of_llmservingsim() -> None:
    paths = sorted(real_data("llmservingsim", "bench").glob("*/*/vllm/requests.jsonl"))
    frames = [rows(llmservingsim_bench.READER, path) for path in paths]
    assert [frame.height for frame in frames] == [300, 300, 300]
    frame = pl.concat(frames)
    assert frame["request_id"].n_unique() == 900
    for later, earlier in (
        ("prefill_started_at_us", "arrived_at_us"),
        ("first_token_at_us", "prefill_started_at_us"),
        ("finished_at_us", "first_token_at_us"),
    ):
        assert frame.filter(pl.col(later) < pl.col(earlier)).is_empty()


def test_the_real_loads_of_llmservingsim() -> None:
    paths = sorted(real_data("llmservingsim", "bench").glob("*/*/vllm/timeseries.csv"))
    frames = [rows(llmservingsim_timeseries.READER, path, name=f"{i}.csv") for i, path in enumerate(paths)]
    assert [frame.height for frame in frames] == [184, 67, 65]
    assert pl.concat(frames).select(pl.struct("observed_at_us", "node").n_unique()).item() == 316


@pytest.mark.parametrize(
    "name", ["sharegpt-llama-3.1-8b-300-sps10.jsonl.gz", "sharegpt-qwen3-30b-a3b-300-sps10.jsonl.gz"]
)
def test_the_real_workloads_of_llmservingsim(name: str) -> None:
    (batch,) = batches(llmservingsim_workload.READER, real_data("llmservingsim", "workloads", name))
    assert batch.frame.height == 300
    assert batch.bad == []
