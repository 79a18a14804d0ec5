from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.readers.dynamo_trace import READER
from features.readers.head import Head
from tests.features.logs import START_US, dynamo, lines
from tests.features.readers.reading import bad, batches, chunks_of, rows
from tests.features.shared import real_data

START_MS = START_US // 1_000


def write(tmp_path: Path, *events: dict[str, Any]) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(lines(*events))
    return path


def tool(kind: str, call: str, *, session: str = "s", wrapped: bool = True) -> dict[str, Any]:
    event = {
        "schema": "dynamo.request.trace.v1",
        "event_type": kind,
        "event_time_unix_ms": START_MS,
        "event_source": "harness",
        "agent_context": {"session_id": session},
        "tool": {"tool_call_id": call, "tool_class": "web_search"},
    }
    return {"timestamp": 5, "event": event} if wrapped else event


def skipped(path: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for batch in batches(READER, path):
        counts.update(batch.skipped)
    return dict(counts)


def test_a_request_of_an_agent(tmp_path: Path) -> None:
    (row,) = rows(READER, write(tmp_path, dynamo(1))).to_dicts()
    received = START_US + 1_000_000
    assert row == {
        "request_id": "q1",
        "pool": "a",
        "arrived_at_us": received,
        "session_id": "s",
        "model": "m",
        "prompt_tokens": 600,
        "output_tokens": 7,
        "finish_reason": None,
        "block_tokens": 256,
        "block_hashes": [2**64 - 1, 2**63, 3],
        "block_hash_scope": "dynamo",
        "prefill_cached_tokens": 256,
        "prefill_node": f"{2**64 - 2}/dp0",
        "decode_node": "7/dp1",
        "prefill_started_at_us": received + 2_500,
        "prefill_finished_at_us": received + 12_750,
        "first_token_at_us": received + 13_000,
        "finished_at_us": received + 99_500,
        "source_row": 1,
    }


def test_a_request_without_an_agent_has_its_prompt_in_the_replay(tmp_path: Path) -> None:
    event = {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": START_MS + 1_000,
        "request": {
            "request_id": "x",
            "request_received_ms": START_MS,
            "output_tokens": 16,
            "replay": {"trace_block_size": 64, "input_length": 128, "input_sequence_hashes": [5, 6]},
        },
    }
    (row,) = rows(READER, write(tmp_path, event)).to_dicts()
    known = {name: value for name, value in row.items() if value is not None}
    assert known == {
        "request_id": "x",
        "pool": "a",
        "arrived_at_us": START_US,
        "prompt_tokens": 128,
        "output_tokens": 16,
        "block_tokens": 64,
        "block_hashes": [5, 6],
        "block_hash_scope": "dynamo",
        "source_row": 1,
    }


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "stop"),
        ("tool_calls", "stop"),
        ("length", "length"),
        ("cancelled", "cancelled"),
        ("error", "failed"),
        ("content_filter", None),
    ],
)
def test_finish_reasons(reason: str, expected: str | None, tmp_path: Path) -> None:
    value = dynamo(0)
    value["event"]["request"]["finish_reason_metadata"] = {
        "finish_reason": reason,
        "tool_calls": [{"id": "c", "name": "web_search"}],
    }
    assert rows(READER, write(tmp_path, value))["finish_reason"].to_list() == [expected]


@pytest.mark.parametrize(
    ("context", "session"),
    [
        (
            {"session_id": "run", "trajectory_id": "run:a", "parent_trajectory_id": "run:b", "session_type_id": "t"},
            "run:a",
        ),
        ({"workflow_id": "run", "program_id": "run:a", "workflow_type_id": "t"}, "run:a"),
        ({"session_id": "run:a", "parent_session_id": "run", "session_final": True}, "run:a"),
    ],
)
def test_the_forerunner_names_a_conversation_otherwise(context: dict[str, Any], session: str, tmp_path: Path) -> None:
    value = dynamo(0, wrapped=False, schema="dynamo.agent.trace.v1", agent_context=context)
    assert rows(READER, write(tmp_path, value))["session_id"].to_list() == [session]
    assert "dynamo.agent.trace.v1" in READER.sniff(Head("", [value]))


def test_other_events_are_skipped_by_kind_and_lost_starts_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = dynamo(2, event_type="request_payload")
    payload["event"]["payload"] = {"messages": [{"content": "a prompt"}]}
    outside = {key: value for key, value in tool("tool_error", "c5", wrapped=False).items() if key != "agent_context"}
    path = write(
        tmp_path,
        tool("tool_start", "c1"),
        tool("tool_start", "c2"),
        dynamo(0),
        tool("tool_end", "c1"),
        tool("tool_end", "c1", session="other"),
        tool("tool_error", "c4"),
        payload,
        outside | {"session_id": "s"},
        tool("tool_start", "c5", wrapped=False),
    )
    # The start of c5 stands after its end.
    counts = {
        "tool_start": 3,
        "tool_end": 1,
        "tool_end_without_start": 1,
        "tool_error_without_start": 2,
        "request_payload": 1,
    }
    assert skipped(path) == counts
    chunks_of(monkeypatch, 1)
    assert skipped(path) == counts


def test_a_line_without_a_kind_is_bad(tmp_path: Path) -> None:
    read = batches(READER, write(tmp_path, dynamo(0), {"timestamp": 5, "event": {"schema": "x"}}, {"a": 1}))
    assert bad(read) == [(2, "event_type|nullability"), (3, "event_type|nullability")]


def test_a_time_beyond_measure_stays_wrong(tmp_path: Path) -> None:
    value = dynamo(0)
    value["event"]["request"]["total_time_ms"] = 1e300
    assert rows(READER, write(tmp_path, value))["finished_at_us"].to_list() == [-2]


def test_the_real_trace() -> None:
    path = real_data("dynamo", "pi_request_trace.jsonl.gz")
    read = batches(READER, path)
    assert not bad(read)
    frame = pl.concat([batch.frame for batch in read])
    assert frame.height == 17
    assert frame["session_id"].n_unique() == 5
    assert skipped(path) == {"tool_start": 22, "tool_end": 20, "tool_error": 2}
