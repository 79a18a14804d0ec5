"""Answers of SGLang's /v1/loads: every section, both sides, and what is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from features.readers.head import Head
from features.readers.sglang_loads import READER
from features.readers.sglang_polls import poll_lines
from features.schemas import with_all_columns
from tests.features.logs import START_US, lines, poll
from tests.features.readers.reading import bad, batches

CORE = {
    "timestamp": 1_767_571_199.5, "dp_rank": 0, "num_running_reqs": 3, "num_waiting_reqs": 12,
    "num_waiting_uncached_tokens": 100, "num_used_tokens": 900, "num_total_tokens": 1_000, "num_active_tokens": 800,
    "num_prealloc_ready_tokens": 40, "max_total_num_tokens": 10_000, "max_running_requests": 64, "token_usage": 0.09,
    "gen_throughput": 55.5, "cache_hit_rate": 0.5, "utilization": -1, "total_prefill_uncached_tokens": 5,
    "total_prefill_busy_us": 50, "decode_moments": [10.0, 30.0, 1_000.0, 90.0, 3_000.0, 30.0],
}  # fmt: skip
SECTIONS = {
    "memory": {"weight_gb": 14.9, "kv_cache_gb": 5.0, "graph_gb": 0.4, "token_capacity": 10_000},
    "speculative": {"accept_length": 2.5, "accept_rate": 0.8},
    "lora": {"slots_used": 1, "slots_total": 4, "utilization": 0.25},
    "disaggregation": {
        "mode": "decode", "prefill_bootstrap_queue_reqs": 0, "prefill_inflight_queue_reqs": 0,
        "decode_prealloc_queue_reqs": 4, "decode_transfer_queue_reqs": 5, "decode_retracted_queue_reqs": 1,
        "kv_transfer_speed_gb_s": 1.5, "kv_transfer_latency_ms": 12.25,
    },
    "queues": {"waiting": 2, "grammar": 0, "paused": 6, "retracted": 1, "prealloc_ready": 3},
}  # fmt: skip
PREFILL = {
    "mode": "prefill", "prefill_bootstrap_queue_reqs": 2, "prefill_inflight_queue_reqs": 3,
    "decode_prealloc_queue_reqs": 0, "decode_transfer_queue_reqs": 0, "decode_retracted_queue_reqs": 0,
    "kv_transfer_speed_gb_s": 0.0, "kv_transfer_latency_ms": 0.0,
}  # fmt: skip


def read(path: Path, content: bytes) -> tuple[list[dict[str, Any]], dict[str, int], list[tuple[int, str]]]:
    """Known values of each row."""
    path.write_bytes(content)
    (batch,) = batches(READER, path)
    rows = [{name: value for name, value in row.items() if value is not None} for row in batch.frame.rows(named=True)]
    return rows, {kind: count for kind, count in batch.skipped.items() if count}, bad([batch])


def answer(*loads: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-05T00:00:01.250000+00:00", "version": "0.5.23", "loads": list(loads), **more}


def polled(*loads: dict[str, Any]) -> bytes:
    return lines(poll(1, body=answer(*loads)))


def test_every_section_of_a_decode_rank(tmp_path: Path) -> None:
    rows, skipped, wrong = read(tmp_path / "x.jsonl", polled({**CORE, **SECTIONS}, {**CORE, **SECTIONS, "dp_rank": 1}))
    assert (skipped, wrong) == ({}, [])
    assert [row["node"] for row in rows] == ["d0:30000/dp0", "d0:30000/dp1"]
    assert rows[0] == {
        "observed_at_us": START_US + 1_000_000, "node": "d0:30000/dp0", "role": "decode", "block_tokens": 1,
        "usable_blocks": 10_000, "active_blocks": 800, "inflight_blocks": 100, "free_blocks": 9_100,
        "queued_blocks": 100, "waiting_requests": 7, "waiting_prompt_tokens": 100, "running_requests": 3,
        "running_tokens": 800, "prealloc_requests": 4, "receiving_requests": 5, "retracted_requests": 1,
        "paused_requests": 6, "last_transfer_bytes_per_s": 1.5 * 2**30, "last_transfer_us": 12_250,
        "prefill_busy_us": 50, "prefill_computed_tokens": 5, "decode_moments": CORE["decode_moments"],
        "generated_tokens": 30, "source_row": 1,
    }  # fmt: skip


def test_the_prefill_side(tmp_path: Path) -> None:
    ((row,), _, _) = read(tmp_path / "x.jsonl", polled({**CORE, "decode_moments": None, "disaggregation": PREFILL}))
    assert (row["role"], row["active_blocks"], row["free_blocks"]) == ("prefill", 900, 9_100)
    # Of 12 that wait three are being sent; two wait for a D to answer.
    assert (row["waiting_requests"], row["bootstrap_requests"], row["transferring_requests"]) == (9, 2, 3)
    missing = {"last_transfer_us", "last_transfer_bytes_per_s", "receiving_requests", "prealloc_requests"}
    assert not missing & set(row)  # no transfer has ended yet, and a P receives none
    assert not {"inflight_blocks", "running_tokens", "generated_tokens", "queued_blocks"} & set(row)


@pytest.mark.parametrize("mode", [None, "null"])
def test_an_engine_that_does_both(mode: str | None, tmp_path: Path) -> None:
    section = {**SECTIONS["disaggregation"], "mode": mode}
    ((row,), _, wrong) = read(tmp_path / "x.jsonl", polled({**CORE, "disaggregation": section}))
    assert (row["role"], row["waiting_requests"], wrong) == ("colocated", 12, [])


@pytest.mark.parametrize("unknown", [-1, None])
def test_what_is_unknown_stays_so(unknown: int | None, tmp_path: Path) -> None:
    numbers = {name: unknown for name, value in CORE.items() if isinstance(value, int | float) and name != "dp_rank"}
    rows, skipped, _ = read(tmp_path / "x.jsonl", polled({**CORE, **numbers, "decode_moments": None}))
    assert skipped == {}
    assert rows == [
        {"observed_at_us": START_US + 1_000_000, "node": "d0:30000/dp0", "block_tokens": 1, "source_row": 1}
    ]


def test_capacity_from_the_memory_section(tmp_path: Path) -> None:
    ((row,), _, _) = read(tmp_path / "x.jsonl", polled({**CORE, **SECTIONS, "max_total_num_tokens": -1}))
    assert row["usable_blocks"] == 10_000


def test_a_rank_that_has_not_started_is_no_idle_one(tmp_path: Path) -> None:
    zeros = {name: 0 for name, value in CORE.items() if isinstance(value, int | float)}
    rows, skipped, _ = read(tmp_path / "x.jsonl", polled({**zeros, "dp_rank": 0}, {**CORE, "dp_rank": 1}))
    assert [row["node"] for row in rows] == ["d0:30000/dp1"]
    assert skipped == {"not_started": 1}


def test_the_aggregate_of_older_versions_is_not_read(tmp_path: Path) -> None:
    body = answer(CORE, aggregate={"num_running_reqs": 99, "num_used_tokens": 99}, dp_rank_count=1)
    rows, _, _ = read(tmp_path / "x.jsonl", lines(poll(1, body=body)))
    assert [row["running_requests"] for row in rows] == [3]


@pytest.mark.parametrize("form", ["line", "indented"])
def test_bare_answers(form: str, tmp_path: Path) -> None:
    value = answer({**CORE, **SECTIONS}, {**CORE, "dp_rank": 1})
    content = lines(value) if form == "line" else json.dumps(value, indent=2).encode()
    rows, skipped, wrong = read(tmp_path / "d7.json", content)
    assert (skipped, wrong) == ({}, [])
    assert [row["node"] for row in rows] == ["d7/dp0", "d7/dp1"]
    assert {row["observed_at_us"] for row in rows} == {START_US + 1_250_000}
    assert READER.sniff(Head("", [value]))


def test_polls_and_bare_answers_in_one_file(tmp_path: Path) -> None:
    content = polled(CORE) * 200 + lines(answer({**CORE, "dp_rank": 1})) + polled({**CORE, "dp_rank": 2})
    rows, skipped, wrong = read(tmp_path / "d7.jsonl", content)
    assert (skipped, wrong) == ({}, [])
    assert [row["node"] for row in rows[198:]] == ["d0:30000/dp0"] * 2 + ["d7/dp1", "d0:30000/dp2"]


@pytest.mark.parametrize("time", [None, "soon", "2026-01-05"])
def test_a_bare_answer_needs_its_time(time: str | None, tmp_path: Path) -> None:
    rows, _, _ = read(tmp_path / "d7.json", lines({**answer(CORE), "timestamp": time}))
    assert "observed_at_us" not in rows[0]  # its rule quarantines it


@pytest.mark.parametrize("stamp", ["2026-01-05T00:00:01.25Z", "2026-01-05T08:00:01.250+08:00"])
def test_times_of_bare_answers(stamp: str, tmp_path: Path) -> None:
    rows, _, _ = read(tmp_path / "d7.json", lines({**answer(CORE), "timestamp": stamp}))
    assert rows[0]["observed_at_us"] == START_US + 1_250_000


def test_a_wrong_type_in_a_document_is_named(tmp_path: Path) -> None:
    value = answer({**CORE, "dp_rank": "first"})
    rows, _, wrong = read(tmp_path / "d7.json", json.dumps(value, indent=2).encode())
    assert (rows, wrong) == ([], [(1, "loads[].dp_rank|type")])


def test_what_is_written_for_emulated_pools_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    prefill = {**CORE, "dp_rank": 2, "decode_moments": None, "disaggregation": PREFILL}
    path.write_bytes(polled({**CORE, **SECTIONS}, {**CORE, "dp_rank": 1, "disaggregation": None}, prefill))
    (before,) = batches(READER, path)
    path.write_bytes(poll_lines(with_all_columns("node_loads", before.frame)))
    (after,) = batches(READER, path)
    assert after.frame.drop("role").equals(before.frame.drop("role"))
    # A writer does not know whether a node without a role has none or does not tell it.
    assert after.frame["role"].to_list() == ["decode", "colocated", "prefill"]
    assert before.frame["role"].to_list() == ["decode", None, "prefill"]


def test_recognised_by_content() -> None:
    assert READER.sniff(Head("", [poll(0)]))
    assert READER.sniff(Head("", [poll(0), poll(1, status=503, body="upstream is gone")]))
    assert not READER.sniff(Head("", [poll(0, body="vllm:num_requests_running 1")]))
    assert not READER.sniff(Head("", [poll(0, body={"models": []})]))
