from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.errors import SourceError
from features.readers.kv_cache_tester import READER
from tests.contracts.samples.kv_cache_tester import conversation, request
from tests.features.logs import START_US
from tests.features.readers.reading import bad, batches, rows
from tests.features.shared import real_data


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "trace_7.json"
    path.write_bytes(content)
    return path


def test_a_request_of_a_conversation_is_a_row(tmp_path: Path) -> None:
    frame = rows(READER, write(tmp_path, conversation(request(0), request(1, type="n", ttft=None, stop="end_turn"))))
    assert frame.to_dicts()[1] == {
        "request_id": "trace_7-000002",
        "pool": "a",
        "arrived_at_us": START_US + 6_000_000,
        "session_id": "trace_7",
        "model": "m",
        "prompt_tokens": 194,
        "output_tokens": 9,
        "finish_reason": "stop",
        "block_tokens": 64,
        "block_hashes": [1, 2, 3],
        "block_hash_scope": "trace_7.json/trace_7",
        "first_token_at_us": None,
        "finished_at_us": START_US + 8_500_000,
        "source_row": 2,
    }
    assert frame["first_token_at_us"][0] == START_US + 750_000


@pytest.mark.parametrize(
    ("stop", "expected"),
    [("tool_use", "stop"), ("end_turn", "stop"), ("max_tokens", "length"), ("", None), ("refusal", None), (None, None)],
)
def test_stop_reasons(stop: str | None, expected: str | None, tmp_path: Path) -> None:
    frame = rows(READER, write(tmp_path, conversation(request(0, stop=stop))))
    assert frame["finish_reason"].to_list() == [expected]


def test_sub_agents_are_sessions_of_their_own_and_other_entries_are_skipped(tmp_path: Path) -> None:
    agent = {"t": 7.0, "type": "subagent", "agent_id": "b2", "requests": [request(1, t=7.5), request(1, t=9.0)]}
    void = {"t": 8.0, "type": "subagent", "agent_id": "b3", "requests": []}
    note = {"t": 8.0, "type": "compaction"}
    path = write(tmp_path, conversation(request(0), agent, void, note, request(3)))
    (batch,) = batches(READER, path)
    assert dict(batch.skipped) == {"subagent": 1, "compaction": 1}
    assert batch.bad == []
    assert batch.frame.select("request_id", "session_id", "source_row").rows() == [
        ("trace_7-000001", "trace_7", 1),
        ("trace_7-000002", "trace_7/b2", 2),
        ("trace_7-000003", "trace_7/b2", 2),
        ("trace_7-000004", "trace_7", 5),
    ]
    assert (batch.frame["arrived_at_us"] - START_US).to_list() == [0, 7_500_000, 9_000_000, 18_000_000]


def test_a_request_that_is_none_costs_no_other(tmp_path: Path) -> None:
    content = conversation(request(0), request(1, **{"in": "many"}), 5, {}, request(4), request(5, out=1.5), None)  # type: ignore[arg-type]
    (batch,) = batches(READER, write(tmp_path, content))
    assert bad([batch]) == [
        (2, "in|type"),
        (3, "json_object"),
        (4, "requests|nullability"),
        (6, "out|type"),
        (7, "json_object"),
    ]
    assert batch.frame["source_row"].to_list() == [1, 5]


def test_scopes_of_hashes(tmp_path: Path) -> None:
    frame = rows(READER, write(tmp_path, conversation(request(0), hash_id_scope="global")))
    assert frame["block_hash_scope"].to_list() == ["kv-cache-tester"]


@pytest.mark.parametrize("indent", [None, 1])
def test_a_document_over_several_lines_and_one_a_line(indent: int | None, tmp_path: Path) -> None:
    whole = json.loads(conversation(request(0), request(1)))
    one = rows(READER, write(tmp_path, json.dumps(whole, indent=indent).encode()))
    other: dict[str, Any] = {**whole, "id": "trace_8"}
    two = rows(READER, write(tmp_path, b"".join(json.dumps(value).encode() + b"\n" for value in (whole, other))))
    assert two.height == 4
    assert two["source_row"].to_list() == [1, 1, 2, 2]
    assert two.head(2).drop("source_row").equals(one.drop("source_row"))
    assert two["request_id"].to_list()[2:] == ["trace_8-000001", "trace_8-000002"]


def test_a_bad_document_is_an_error_and_a_bad_line_is_a_bad_line(tmp_path: Path) -> None:
    for content in (b'{"id": "x", "requests": 5}', b'{"id": 5, "block_size": "x", "requests": []}', b'{"id": "x"'):
        with pytest.raises(SourceError, match=r"trace_7\.json"):
            batches(READER, write(tmp_path, content))
    good = conversation(request(0))
    read = batches(READER, write(tmp_path, good + b'{"id": "x"}\n' + b"{\n" + good.replace(b"trace_7", b"trace_8")))
    assert bad(read) == [(2, "requests|nullability"), (3, "json")]
    assert sum(batch.frame.height for batch in read) == 2


def test_the_real_conversations() -> None:
    folder = real_data("kv-cache-tester", "traces")
    read = [batch for path in sorted(folder.glob("*.json.gz")) for batch in batches(READER, path)]
    assert len(read) == 99
    assert not bad(read)
    assert not any(batch.skipped for batch in read)
    frame = pl.concat([batch.frame for batch in read])
    assert frame.height == 3_600
    assert frame["request_id"].n_unique() == 3_600
    assert frame["session_id"].n_unique() == 99
    assert frame["finished_at_us"].count() == 2_793
    assert frame["first_token_at_us"].count() == 787
