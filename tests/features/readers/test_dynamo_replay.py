"""Joining a replay's report with the trace that was replayed."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from features.errors import SourceError
from features.readers.base import ReadContext
from features.readers.dynamo_replay import READER
from tests.contracts.samples.dynamo_replay import replayed
from tests.features.logs import START_US, lines


def trace_line(i: int, **changes: object) -> dict[str, object]:
    return {
        "timestamp": 60_000 + i * 1_000,
        "input_length": 1_100 + i,
        "output_length": 20,
        "hash_ids": [1, 2 * i + 2, 2 * i + 3],
        **changes,
    }


def report(i: int, at_ms: float, **changes: object) -> dict[str, object]:
    return (
        replayed(0)
        | {"uuid": f"u{i}", "arrival_time_ms": at_ms, "input_length": 1_100 + i, "output_length": 20}
        | changes
    )


def read(
    tmp_path: Path, log: list[dict[str, object]], trace: list[dict[str, object]] | None
) -> tuple[pl.DataFrame, dict[str, int]]:
    (tmp_path / "requests.jsonl").write_bytes(lines(*log))
    if trace is not None:
        (tmp_path / "talk.jsonl").write_bytes(lines(*trace))
    context = ReadContext("a", "requests.jsonl", START_US, (), None if trace is None else tmp_path / "talk.jsonl")
    batches = list(READER.read(tmp_path / "requests.jsonl", context))
    told: dict[str, int] = {}
    for batch in batches:
        told = {kind: told.get(kind, 0) + count for kind, count in batch.told.items()}
    return pl.concat([batch.frame for batch in batches]), told


def test_a_sped_up_replay_finds_its_rows_in_any_order(tmp_path: Path) -> None:
    trace = [trace_line(i) for i in range(10)]
    log = [report(i, i * 1_000 / 6) for i in reversed(range(10))]
    frame, told = read(tmp_path, log, trace)
    assert frame["request_id"].to_list() == [f"talk-{i + 1:09d}" for i in reversed(range(10))]
    assert frame["block_hashes"].to_list() == [[1, 2 * i + 2, 2 * i + 3] for i in reversed(range(10))]
    assert set(frame["block_tokens"]) == {512}
    assert set(frame["block_hash_scope"]) == {"talk.jsonl"}
    assert told == {"not in the trace": 0, "one of several alike in the trace": 0}


def test_rows_alike_are_taken_in_turn_and_told(tmp_path: Path) -> None:
    trace = [trace_line(i) for i in range(8)] + [trace_line(8), trace_line(8, hash_ids=[7, 8, 9])]
    log = [report(8, 4_000.0, uuid="a"), *(report(i, i * 500) for i in range(8)), report(8, 4_000.0, uuid="b")]
    frame, told = read(tmp_path, log, trace)
    assert frame["block_hashes"].to_list()[0] == [1, 18, 19]
    assert frame["block_hashes"].to_list()[-1] == [7, 8, 9]
    assert told["one of several alike in the trace"] == 2


def test_a_request_that_the_trace_does_not_have_keeps_its_own_id(tmp_path: Path) -> None:
    trace = [trace_line(i) for i in range(8)]
    frame, told = read(tmp_path, [*(report(i, i * 500) for i in range(8)), report(3, 3_999.0)], trace)
    assert frame["request_id"].to_list()[-1] == "u3"
    assert frame["block_hashes"].to_list()[-1] is None
    assert told["not in the trace"] == 1


def test_without_a_trace_there_are_no_hashes(tmp_path: Path) -> None:
    frame, told = read(tmp_path, [report(1, 5.25)], None)
    assert frame["request_id"].to_list() == ["u1"]
    assert "block_hashes" not in frame.columns
    assert frame["arrived_at_us"].to_list() == [START_US + 5_250]
    assert told == {}


def test_a_trace_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "talk.jsonl").write_text("nothing\n")
    with pytest.raises(SourceError, match="Mooncake"):
        list(READER.read(_log(tmp_path), ReadContext("a", "r", START_US, (), tmp_path / "talk.jsonl")))


def _log(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(lines(report(1, 5.25)))
    return path
