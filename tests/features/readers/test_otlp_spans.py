"""What each kind of span says of its request, worked out by hand; times are offsets from START_US in milliseconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from features.errors import SourceError
from features.readers.otlp_spans import READER
from tests.features.logs import START_US
from tests.features.readers.reading import bad, batches, rows
from tests.features.spans import Span, export, export_line, span

P, D = {"k8s.pod.name": "p0"}, {"k8s.pod.name": "d0"}
MS = 1_000


def at(ms: float) -> int:
    return START_US + round(ms * MS)


def read_one(tmp_path: Path, resource: dict[str, Any], one: Span) -> dict[str, Any]:
    """The span's row without nulls and times as offsets in milliseconds."""
    log = tmp_path / "spans.jsonl"
    log.write_bytes(export_line((resource, [one])))
    (row,) = rows(READER, log).rows(named=True)
    known = {name: value for name, value in row.items() if value is not None and name not in ("pool", "source_row")}
    return {name: (value - START_US) / MS if name.endswith("_us") else value for name, value in known.items()}


LATENCIES = {
    "gen_ai.latency.time_in_queue": 0.02,
    "gen_ai.latency.time_in_model_prefill": 0.08,
    "gen_ai.latency.time_to_first_token": 0.11,
    "gen_ai.latency.e2e": 0.5,
}


def test_vllm_request_with_old_names(tmp_path: Path) -> None:
    given = {
        "gen_ai.request.id": "chatcmpl-abc",
        "gen_ai.usage.prompt_tokens": 1_000,
        "gen_ai.usage.completion_tokens": 40,
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.n": 1,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.response.model": "m",
        **LATENCIES,
    }
    found = read_one(tmp_path, D, span("llm_request", at(10), at(520), "7" * 32, "a" * 16, given=given))
    assert found == {
        "request_id": "abc",
        "part": f"engine.open/{'7' * 32}/{'a' * 16}",
        "part_at_us": 10,
        "rank": 3,
        "arrived_at_us": 10,
        "model": "m",
        "prompt_tokens": 1_000,
        "output_tokens": 40,
        "max_output_tokens": 64,
        # The first token comes 110 ms after the arrival, of which 80 are prefill: 30 were waiting, 20 in the queue.
        "prefill_started_at_us": 40,
        "prefill_finished_at_us": 120,
        "first_token_at_us": 120,
        "finished_at_us": 510,
        "prefill_node": "d0/dp0",
        "decode_node": "d0/dp0",
    }


def test_vllm_request_with_current_names(tmp_path: Path) -> None:
    given = {
        "gen_ai.request.id": "cmpl-abc-0",
        "gen_ai.usage.input_tokens": 1_000,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 256,
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.conversation.id": "talk",
    }
    found = read_one(tmp_path, D, span("llm_request", at(10), at(520), given=given))
    assert found["request_id"] == "abc"
    assert (found["prompt_tokens"], found["output_tokens"], found["prefill_cached_tokens"]) == (1_000, 40, 256)
    assert (found["finish_reason"], found["session_id"]) == ("length", "talk")
    assert found["finished_at_us"] == 520  # the span's end, where no latency says it
    assert "first_token_at_us" not in found


def test_without_a_first_token_prefill_follows_the_queue(tmp_path: Path) -> None:
    given = {
        "gen_ai.request.id": "r",
        "gen_ai.latency.time_in_queue": 0.02,
        "gen_ai.latency.time_in_model_prefill": 0.08,
    }
    found = read_one(tmp_path, P, span("llm_request", at(10), at(520), given=given))
    assert (found["prefill_started_at_us"], found["prefill_finished_at_us"]) == (30, 110)


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ({"k8s.pod.name": "x", "llm-d.ai/role": "prefill"}, "engine.prefill"),
        ({"k8s.pod.name": "x", "service.name": "vllm-decode"}, "engine.decode"),
        ({"k8s.pod.name": "x", "service.name": "vllm"}, "engine.open"),
    ],
)
def test_roles_come_from_the_resource_and_hide_what_the_other_side_knows(
    resource: dict[str, str], kind: str, tmp_path: Path
) -> None:
    given = {
        "gen_ai.request.id": "r",
        "gen_ai.usage.prompt_tokens": 9,
        "gen_ai.usage.completion_tokens": 1,
        "gen_ai.usage.cached_tokens": 4,
        **LATENCIES,
    }
    found = read_one(tmp_path, resource, span("llm_request", at(0), at(500), given=given))
    assert found["part"].startswith(kind + "/")
    assert ("output_tokens" in found, "prefill_cached_tokens" in found) == {
        "engine.prefill": (False, True),
        "engine.decode": (True, False),
        "engine.open": (True, True),
    }[kind]
    if kind == "engine.decode":
        assert found["decode_admitted_at_us"] == 30
        assert "prefill_node" not in found


def test_one_token_may_be_a_prefill_only(tmp_path: Path) -> None:
    given = {"gen_ai.request.id": "r", "gen_ai.request.max_tokens": 1}
    assert read_one(tmp_path, P, span("llm_request", at(0), at(9), given=given))["part"].startswith("engine.one_token/")


@pytest.mark.parametrize(
    ("resource", "node"),
    [
        ({"k8s.pod.name": "pod", "service.instance.id": "i", "host.name": "h"}, "pod/dp0"),
        ({"service.instance.id": "i", "host.name": "h"}, "i/dp0"),
        ({"host.name": "h", "service.name": "vllm-3"}, "h/dp0"),
        ({"service.name": "vllm-3"}, "vllm-3/dp0"),
        ({"service.name": "vllm"}, None),  # the name of a whole fleet
        ({}, None),
    ],
)
def test_what_names_a_node(resource: dict[str, str], node: str | None, tmp_path: Path) -> None:
    found = read_one(tmp_path, resource, span("llm_request", at(0), at(9), given={"gen_ai.request.id": "r"}))
    assert found.get("decode_node") == node


def test_router_spans(tmp_path: Path) -> None:
    given = {"target_model": "m", "request_prio": -2, "gen_ai.request.id": "r"}
    found = read_one(tmp_path, {}, span("gateway.request_orchestration", at(1), at(4), "7" * 32, given=given))
    wanted = {"rank": 0, "arrived_at_us": 1, "decided_at_us": 4, "priority": -2, "model": "m"}
    assert {name: found[name] for name in wanted} == wanted
    picked = read_one(tmp_path, {}, span("pick_endpoints", at(2), at(3), given={"gen_ai.request.id": "r"}))
    assert (picked["decided_at_us"], picked["rank"]) == (3, 1)
    request = read_one(tmp_path, {}, span("gateway.request", at(0), at(900), "7" * 32))
    assert request["request_id"] == "trace:" + "7" * 32
    assert "finished_at_us" not in request  # the router may stop listening when the answer begins


def test_hand_off_to_p(tmp_path: Path) -> None:
    used = {
        "gen_ai.request.id": "r",
        "llm_d.epp.pd.disaggregation_used": True,
        "llm_d.epp.pd.prefill_pod_address": "10.0.0.7",
        "llm_d.epp.pd.prefill_pod_port": "8000",
    }
    assert read_one(tmp_path, {}, span("prerequest", at(4), at(5), given=used))["prefill_node"] == "10.0.0.7:8000/dp0"
    unused = {"gen_ai.request.id": "r", "llm_d.epp.pd.disaggregation_used": False}
    assert "prefill_node" not in read_one(tmp_path, {}, span("prerequest", at(4), at(5), given=unused))


@pytest.mark.parametrize("name", ["llm_d.pd_proxy.prefill", "prefill"], ids=["old", "current"])
def test_sidecar_spans(name: str, tmp_path: Path) -> None:
    given = {
        "llm_d.pd_proxy.request_id": "u",
        "llm_d.pd_proxy.prefill_target": "10.0.0.7:8000",
        "llm_d.pd_proxy.connector": "nixlv2",
        "llm_d.pd_proxy.prefill.duration_ms": 105.0,
    }
    found = read_one(tmp_path, D, span(name, at(8), at(114), given=given))
    assert (found["prefill_node"], found["prefill_finished_at_us"], found["rank"]) == ("10.0.0.7:8000/dp0", 113, 5)
    assert "prefill_started_at_us" not in found  # P's queue is part of it
    sglang = {**given, "llm_d.pd_proxy.connector": "sglang"}
    assert "prefill_finished_at_us" not in read_one(tmp_path, D, span(name, at(8), at(114), given=sglang))


def test_the_sidecars_own_machine_is_no_node(tmp_path: Path) -> None:
    for target, node in (("localhost:8001", None), ("10.0.0.9:8001", "10.0.0.9:8001/dp0")):
        given = {"llm_d.pd_proxy.request_id": "u", "llm_d.pd_proxy.decode.target": target}
        assert read_one(tmp_path, D, span("decode", at(0), at(9), given=given)).get("decode_node") == node


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("prefill_waiting", {"prefill_started_at_us": 30}),
        ("prefill_forward", {"prefill_started_at_us": 20, "prefill_finished_at_us": 30}),
        ("prefill_transfer_kv_cache", {"transfer_started_at_us": 20, "transfer_finished_at_us": 30}),
        ("decode_transferred", {"transfer_finished_at_us": 30}),
        ("decode_waiting", {"decode_admitted_at_us": 30}),
        ("decode_forward", {"decode_admitted_at_us": 20, "finished_at_us": 30}),
    ],
)
def test_stages_of_sglang_wait_for_their_trace(name: str, times: dict[str, int], tmp_path: Path) -> None:
    found = read_one(tmp_path, P, span(name, at(20), at(30), "5" * 32))
    side = "prefill_node" if name.startswith("prefill") else "decode_node"
    told = {key: value for key, value in found.items() if key not in ("request_id", "part", "part_at_us", "rank")}
    assert told == {side: "p0/dp0", **times}
    assert found["request_id"] == "trace:" + "5" * 32


def test_root_of_sglang(tmp_path: Path) -> None:
    given = {
        "rid": "abcdef0123",
        "module": "sglang::request",
        "bootstrap_room": "0x5",
        "gen_ai.usage.prompt_tokens": 9,
        "gen_ai.usage.completion_tokens": 4,
        "gen_ai.latency.time_to_first_token": 0.17,
    }
    found = read_one(tmp_path, D, span("decode Req abcdef01", at(2), at(905), given=given))
    assert found["part"].startswith("engine.decode/")
    assert (found["request_id"], found["first_token_at_us"], found["finished_at_us"]) == ("abcdef0123", 172, 905)
    unified = read_one(tmp_path, D, span(" Req abcdef01", at(2), at(905), given=given))
    assert unified["part"].startswith("engine.open/")


def test_what_is_no_part_is_skipped_by_kind(tmp_path: Path) -> None:
    log = tmp_path / "x.jsonl"
    others = [
        span("POST /v1/completions", at(0), at(1), "7" * 32),
        span("decode_loop", at(0), at(1), "7" * 32, given={"decode_ct": 3}),
        span("llm_d.epp.scorer.queue-scorer", at(0), at(1), given={"gen_ai.request.id": "r"}),
        span("llm_request", at(0), at(1)),  # neither request nor trace
    ]
    log.write_bytes(export_line((D, others), ({}, [])))
    (read,) = batches(READER, log)
    assert read.frame.is_empty()
    assert read.skipped == {"other_span": 3, "no_request_id": 1}


def test_faults_are_named_and_cost_their_span_only(tmp_path: Path) -> None:
    good = span("llm_request", at(0), at(1), given={"gen_ai.request.id": "r"})
    faults: list[tuple[dict[str, Any], str]] = [
        ({"startTimeUnixNano": None}, "startTimeUnixNano|nullability"),
        ({"startTimeUnixNano": "now"}, "startTimeUnixNano|type"),
        ({"endTimeUnixNano": 1.5}, "endTimeUnixNano|type"),
        ({"name": 5}, "name|type"),
        ({"traceId": 5}, "traceId|type"),
        ({"attributes": {"a": 1}}, "attributes|type"),
        ({"attributes": [{"key": "rid", "value": "r"}]}, "rid|type"),
        ({"attributes": [{"key": "dp_rank", "value": {"doubleValue": 1.5}}]}, "dp_rank|type"),
        ({"attributes": [{"key": "gen_ai.latency.e2e", "value": {"intValue": 10**400}}]}, "gen_ai.latency.e2e|type"),
        (
            {"attributes": [{"key": "gen_ai.latency.e2e", "value": {"doubleValue": 1e300}}]},
            "gen_ai.latency.e2e|max",
        ),
    ]
    log = tmp_path / "x.jsonl"
    log.write_bytes(export_line((D, [good, *({**good, **fault} for fault, _ in faults)])))
    (read,) = batches(READER, log)
    assert read.frame.height == 1
    assert bad([read]) == [(1, rule) for _, rule in faults]


def test_numbers_may_be_written_either_way(tmp_path: Path) -> None:
    one = span("llm_request", at(0), at(9), given={"gen_ai.request.id": "r"})
    one["startTimeUnixNano"] = int(one["startTimeUnixNano"])
    one["attributes"] += [
        {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": 7}},
        {"key": "gen_ai.usage.completion_tokens", "value": {"doubleValue": 8.0}},
        {"key": "gen_ai.latency.e2e", "value": {"intValue": "2"}},
        {"key": "gen_ai.request.max_tokens", "value": {}},
        {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": 999}},
    ]
    found = read_one(tmp_path, D, one)
    assert (found["prompt_tokens"], found["output_tokens"], found["finished_at_us"]) == (7, 8, 2_000)


def test_a_document_over_several_lines_is_read_as_one(tmp_path: Path) -> None:
    spans = [span("llm_request", at(i), at(i + 1), given={"gen_ai.request.id": f"r{i}"}) for i in range(3)]
    log = tmp_path / "x.json"
    log.write_text(json.dumps(export((D, spans)), indent=2), "utf-8")
    assert rows(READER, log).select("request_id", "source_row").rows() == [("r0", 1), ("r1", 2), ("r2", 3)]


def test_a_document_may_not_be_larger_than_memory_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("features.readers.otlp_spans.DOCUMENT_BYTES_MAX", 100)
    monkeypatch.setattr("features.readers.plain.CHUNK_BYTES", 64)
    log = tmp_path / "x.json"
    log.write_text(json.dumps(export((D, [span("x", at(0), at(1))])), indent=2), "utf-8")
    with pytest.raises(SourceError, match="64 MiB"):
        batches(READER, log)
