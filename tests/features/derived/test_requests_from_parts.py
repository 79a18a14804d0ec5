"""Requests put together from spans, worked out by hand; times are offsets from START_US in milliseconds."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.readers.otlp_spans import READER
from features.schemas import with_all_columns
from tests.features.derived.parts import derived, parts_of
from tests.features.logs import START_US
from tests.features.spans import Span, export_line, span

MS = 1_000
T, U = "a" * 32, "b" * 32
P, D, ROUTER = {"k8s.pod.name": "p0"}, {"k8s.pod.name": "d0"}, {"service.name": "llm-d-router/epp"}


def at(ms: float) -> int:
    return START_US + round(ms * MS)


def requests(contents: list[bytes], folder: Path) -> list[dict[str, Any]]:
    """Derived requests without nulls and provenance, times as offsets."""
    found = derived("request_parts", "requests_from_parts", parts_of(READER, contents, folder))
    return [
        {
            name: (value - START_US) / MS if name.endswith("_us") else value
            for name, value in row.items()
            if value is not None and name not in ("pool", "source", "source_file", "source_row")
        }
        for row in found.rows(named=True)
    ]


def llm_request(start: float, ident: str, trace: str, **given: Any) -> Span:
    seconds = {f"gen_ai.latency.{name}": given.pop(name) for name in list(given) if name.startswith(("time_", "e2e"))}
    counts = {
        f"gen_ai.usage.{name}_tokens": given.pop(name) for name in ("prompt", "completion", "cached") if name in given
    }
    named = {"gen_ai.request.id": ident, **seconds, **counts, **{f"gen_ai.request.{k}": v for k, v in given.items()}}
    return span("llm_request", at(start), at(start + 900), trace, f"{ident}-{start:.0f}", given=named)


def on_p(start: float = 10, ident: str = "chatcmpl-u", trace: str = T) -> Span:
    return llm_request(
        start,
        ident,
        trace,
        prompt=1_000,
        completion=1,
        cached=256,
        max_tokens=1,
        time_in_queue=0.02,
        time_in_model_prefill=0.08,
        time_to_first_token=0.11,
        e2e=0.111,
    )


def on_d(start: float = 130, ident: str = "chatcmpl-u", trace: str = T) -> Span:
    # To D all but the last token of the prompt is cached: P sent it.
    return llm_request(
        start,
        ident,
        trace,
        prompt=1_000,
        completion=50,
        cached=999,
        max_tokens=64,
        time_in_queue=0.03,
        time_in_model_prefill=0.015,
        time_to_first_token=0.05,
        e2e=0.8,
    )


def router() -> list[Span]:
    named = {"gen_ai.request.id": "req-1", "gen_ai.request.model": "m"}
    pair = {"llm_d.epp.pd.prefill_pod_address": "10.0.0.7", "llm_d.epp.pd.prefill_pod_port": "8000"}
    return [
        span("gateway.request", at(0), at(931), T),
        span("gateway.request_orchestration", at(1), at(4), T, given={"target_model": "m", "request_prio": 3}),
        span("pick_endpoints", at(2), at(3), T, given=named),
        span("prerequest", at(3), at(4), T, given={"llm_d.epp.pd.disaggregation_used": True, **pair}),
    ]


WHOLE = {
    "request_id": "req-1",  # the router's, though the engines were called with the sidecar's
    "arrived_at_us": 0,
    "priority": 3,
    "model": "m",
    "prompt_tokens": 1_000,
    "output_tokens": 50,
    "max_output_tokens": 64,
    "prefill_cached_tokens": 256,
    "decided_at_us": 4,
    "prefill_node": "10.0.0.7:8000/dp0",
    "decode_node": "d0/dp0",
    "prefill_started_at_us": 40,  # 10 + 110 − 80
    "prefill_finished_at_us": 120,
    "decode_admitted_at_us": 165,  # 130 + 50 − 15
    "first_token_at_us": 180,
    "finished_at_us": 930,
}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_router_p_and_d_in_three_files_in_any_order(order: tuple[int, ...], tmp_path: Path) -> None:
    files = [export_line((ROUTER, router())), export_line((P, [on_p()])), export_line((D, [on_d()]))]
    assert requests([files[i] for i in order], tmp_path) == [WHOLE]


def test_without_a_router_the_engines_say_what_they_know(tmp_path: Path) -> None:
    (found,) = requests([export_line((P, [on_p()]), (D, [on_d()]))], tmp_path)
    expected = {**WHOLE, "request_id": "u", "arrived_at_us": 10, "prefill_node": "p0/dp0"}
    assert found == {
        name: value for name, value in expected.items() if name not in ("decided_at_us", "priority", "model")
    }


def test_an_engine_alone_did_both_phases(tmp_path: Path) -> None:
    (found,) = requests([export_line((D, [on_d()]))], tmp_path)
    assert (found["prefill_node"], found["decode_node"]) == ("d0/dp0", "d0/dp0")
    assert (found["prefill_started_at_us"], found["prefill_finished_at_us"]) == (165, 180)
    assert found["prefill_cached_tokens"] == 999
    assert "decode_admitted_at_us" not in found


def test_one_token_alone_is_a_whole_request(tmp_path: Path) -> None:
    (found,) = requests([export_line((P, [on_p()]))], tmp_path)
    assert (found["output_tokens"], found["max_output_tokens"], found["decode_node"]) == (1, 1, "p0/dp0")


def test_a_d_that_was_asked_for_one_token_is_not_taken_for_a_p(tmp_path: Path) -> None:
    p, d = {**P, "llm-d.ai/role": "prefill"}, D
    short = llm_request(130, "chatcmpl-u", T, prompt=1_000, completion=1, max_tokens=1, e2e=0.1)
    (found,) = requests([export_line((p, [on_p()]), (d, [short]))], tmp_path)
    assert (found["prefill_node"], found["decode_node"], found["output_tokens"]) == ("p0/dp0", "d0/dp0", 1)


def test_a_named_p_beats_an_open_d_for_prefill(tmp_path: Path) -> None:
    (found,) = requests([export_line(({**P, "role": "prefill"}, [on_p()]), (D, [on_d()]))], tmp_path)
    assert (found["prefill_node"], found["prefill_started_at_us"], found["prefill_cached_tokens"]) == (
        "p0/dp0",
        40,
        256,
    )


def stages() -> list[bytes]:
    """A request of SGLang with PD; its stages name their trace only."""
    tokens = {"gen_ai.usage.prompt_tokens": 700, "gen_ai.usage.completion_tokens": 30}
    on_prefill = [
        span("prefill Req abcd", at(1), at(142), T, given={"rid": "abcd", "gen_ai.usage.prompt_tokens": 700}),
        span("prefill_waiting", at(5), at(30), T),
        span("prefill_forward", at(30), at(100), T),
        span("prefill_transfer_kv_cache", at(101), at(140), T),
    ]
    on_decode = [
        span(
            "decode Req abcd",
            at(2),
            at(905),
            T,
            given={"rid": "abcd", **tokens, "gen_ai.latency.time_to_first_token": 0.17},
        ),
        span("decode_transferred", at(6), at(150), T),
        span("decode_waiting", at(150), at(160), T),
        span("decode_forward", at(160), at(900), T),
    ]
    return [export_line((P, on_prefill)), export_line((D, on_decode))]


@pytest.mark.parametrize("turned", [False, True])
def test_stages_of_sglang_are_joined_by_their_trace(turned: bool, tmp_path: Path) -> None:
    (found,) = requests(stages()[::-1] if turned else stages(), tmp_path)
    assert found == {
        "request_id": "abcd",
        "arrived_at_us": 1,
        "prompt_tokens": 700,
        "output_tokens": 30,
        "prefill_node": "p0/dp0",
        "decode_node": "d0/dp0",
        "prefill_started_at_us": 30,
        "prefill_finished_at_us": 100,
        "transfer_started_at_us": 101,
        "transfer_finished_at_us": 150,  # D can read it; P saw it sent at 140
        "decode_admitted_at_us": 160,
        "first_token_at_us": 172,
        "finished_at_us": 905,
    }


def test_two_requests_of_one_trace_stay_two_and_share_no_stage(tmp_path: Path) -> None:
    """An agent may put all its calls into one trace: then a stage without an id could be of either."""
    spans = [on_d(130, "chatcmpl-one"), on_d(1_000, "chatcmpl-two"), span("decode_transferred", at(6), at(150), T)]
    found = requests([export_line((D, spans))], tmp_path)
    assert [row["request_id"] for row in found] == ["one", "two"]
    assert not any("transfer_finished_at_us" in row for row in found)


def test_the_same_id_in_two_traces_is_one_request(tmp_path: Path) -> None:
    picked = span("pick_endpoints", at(2), at(3), U, given={"gen_ai.request.id": "u"})
    (found,) = requests([export_line((ROUTER, [picked]), (D, [on_d()]))], tmp_path)
    assert (found["decided_at_us"], found["decode_node"]) == (3, "d0/dp0")


def test_without_a_prompt_or_an_arrival_there_is_no_request(tmp_path: Path) -> None:
    assert requests([export_line((ROUTER, router()))], tmp_path) == []
    assert requests([export_line((P, [span("prefill_forward", at(30), at(100), T)]))], tmp_path) == []


def test_of_equal_ranks_the_first_part_counts_and_parts_of_other_logs_are_taken_as_they_are() -> None:
    row = {"request_id": "r", "part_at_us": at(0), "arrived_at_us": at(5), "source": "another-log"}
    parts = [
        {**row, "part": "b", "rank": 1, "prompt_tokens": 7, "model": "b", "decode_node": "d0"},
        {**row, "part": "a", "rank": 1, "prompt_tokens": 7, "model": "a", "arrived_at_us": at(6)},
        {**row, "part": "c", "rank": 0, "decode_node": "d1"},
    ]
    given = with_all_columns("request_parts", pl.DataFrame(parts))
    (found,) = derived("request_parts", "requests_from_parts", given).rows(named=True)
    assert (found["model"], found["decode_node"], found["arrived_at_us"]) == ("a", "d1", at(5))
