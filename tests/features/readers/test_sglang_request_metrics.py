from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.readers.sglang_requests import READER
from tests.contracts.samples.sglang_request_metrics import START_S, answer
from tests.features.logs import START_US, lines
from tests.features.readers.reading import bad, batches, rows

SECOND_US = 1_000_000


def read(tmp_path: Path, *answers: dict[str, Any]) -> pl.DataFrame:
    path = tmp_path / "sglang-request-metrics-20260105_00.log"
    path.write_bytes(lines(*answers))
    return rows(READER, path)


def test_a_line_is_a_request(tmp_path: Path) -> None:
    (row,) = read(tmp_path, answer(3)).to_dicts()
    received = START_US + 3 * SECOND_US
    assert row == {
        "request_id": "r3",
        "pool": "a",
        "arrived_at_us": received,
        "priority": 2,
        "session_id": "s1",
        "prompt_tokens": 1_003,
        "output_tokens": 10,
        "max_output_tokens": 64,
        "finish_reason": "stop",
        "prefill_cached_tokens": 256,
        "prefill_started_at_us": received + 125_000,
        "prefill_finished_at_us": received + 250_000,
        "decode_admitted_at_us": None,
        "first_token_at_us": received + 281_250,
        "finished_at_us": received + 750_000,
        "preemptions": 0,
        "source_row": 1,
    }


def test_unknown_is_null(tmp_path: Path) -> None:
    less = {
        "request_parameters": "{}",
        "id": "a",
        "finish_reason": None,
        "prompt_tokens": 5,
        "completion_tokens": -1,
        "cached_tokens": None,
        "request_finished_ts": START_S + 2,
        "e2e_latency": 0.5,
    }
    (row,) = read(tmp_path, less).to_dicts()
    known = {name: value for name, value in row.items() if value is not None}
    # The engine's two clocks are one: the request was received its latency before it finished.
    assert known == {
        "request_id": "a",
        "pool": "a",
        "arrived_at_us": START_US + 1_500_000,
        "finished_at_us": START_US + 2_000_000,
        "prompt_tokens": 5,
        "source_row": 1,
    }


def test_times_of_a_monotonic_clock_are_unknown(tmp_path: Path) -> None:
    frame = read(tmp_path, answer(0, forward_entry_time=81_234.5, prefill_finished_time=81_235.5))
    assert frame.select("prefill_started_at_us", "prefill_finished_at_us").row(0) == (None, None)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ({"type": "stop", "matched": "</s>"}, "stop"),
        ({"type": "stop", "matched": 2}, "stop"),
        ({"type": "length", "length": 64}, "length"),
        ({"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}, "cancelled"),
        ({"type": "abort", "message": "The request queue is full.", "status_code": 503}, "rejected"),
        ({"type": "abort", "message": "x", "status_code": 400, "err_type": "BadRequestError"}, "failed"),
        ({"type": "something new"}, None),
        (None, None),
    ],
)
def test_finish_reasons(reason: dict[str, Any] | None, expected: str | None, tmp_path: Path) -> None:
    assert read(tmp_path, answer(0), answer(1, finish_reason=reason))["finish_reason"].to_list() == ["stop", expected]


def test_of_a_disaggregated_request_the_line_of_d_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    room = {"bootstrap_host": "p0", "bootstrap_room": 2**63 + 5}
    prefill = answer(0, parameters=room, id="p-1", completion_tokens=1, finish_reason={"type": "length", "length": 0})
    decode = answer(0, parameters=room, id="d-1", finish_reason={"type": "length", "length": 10})
    path.write_bytes(lines(prefill, decode, answer(1, id="HEALTH_CHECK_5")))
    (batch,) = batches(READER, path)
    assert dict(batch.skipped) == {"prefill_side": 1, "health_check": 1}
    (row,) = batch.frame.to_dicts()
    assert (row["request_id"], row["source_row"]) == ("d-1", 2)
    assert row["decode_admitted_at_us"] == START_US + 125_000
    assert row["prefill_started_at_us"] is None
    assert row["prefill_finished_at_us"] is None


def test_damage_inside_the_inner_text_is_found_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    damaged = [
        answer(1, request_parameters='{"rid": "r1"'),
        answer(2, request_parameters="[1]"),
        answer(3, request_parameters=7),
        answer(4, parameters={"priority": 1.5}),
        answer(5, request_parameters=None),
        answer(6, request_parameters=json.loads(answer(6)["request_parameters"])),
        answer(7, request_parameters='{"priority": 1}\n{"priority": 2}'),
        answer(8, request_parameters='{\n"priority": 3\n}'),
        answer(9, finish_reason="stop"),
    ]
    path.write_bytes(lines(answer(0), *damaged))
    read = batches(READER, path)
    assert bad(read) == [
        (2, "request_parameters|json"),
        (3, "request_parameters|json_object"),
        (4, "request_parameters|json_object"),
        (5, "request_parameters.priority|type"),
        (8, "request_parameters|json"),
        (10, "finish_reason|type"),
    ]
    frame = pl.concat([batch.frame for batch in read])
    assert frame.select("source_row", "priority").rows() == [(1, 2), (6, None), (7, 2), (9, 3)]


def test_one_damaged_text_costs_no_other_of_many(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(lines(*(answer(i) for i in range(500)), answer(500, request_parameters="{"), answer(501)))
    read = batches(READER, path)
    assert bad(read) == [(501, "request_parameters|json")]
    frame = pl.concat([batch.frame for batch in read])
    assert frame["request_id"].to_list() == [f"r{i}" for i in range(502) if i != 500]
    assert frame["session_id"].to_list() == [f"s{i // 3}" for i in range(502) if i != 500]
