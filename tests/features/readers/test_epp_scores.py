from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from features.readers.epp_scores import READER
from features.readers.head import Head
from tests.features.epp import log, message, pick, profile, score, totals
from tests.features.logs import START_US
from tests.features.readers.reading import bad, batches, chunks_of


def read(tmp_path: Path, *lines: dict[str, Any]) -> list[tuple[Any, ...]]:
    """(profile, plugin, endpoint, score, chosen) of all rows."""
    path = tmp_path / "epp.log"
    path.write_bytes(log(*lines))
    columns = ("profile", "plugin", "endpoint", "score", "chosen")
    return [row for batch in batches(READER, path) for row in batch.frame.select(columns).rows()]


QUEUE = "queue-scorer/queue-scorer"


def test_scores_totals_and_the_pick_of_two_profiles(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        profile("r", "decode"),
        score("r", {"name": "d-rank-1", "namespace": "ns"}, 0.5),
        totals("r", d_rank_1=1.5, e=0.25),
        pick("r", "d-rank-1", "e"),
        profile("r", "prefill"),
        score("r", {"name": "p", "namespace": "ns"}, 1),
        pick("r", "p"),
    )
    assert found == [
        ("decode", QUEUE, "d/dp1", 0.5, None),
        ("decode", "total", "d/dp1", 1.5, None),
        ("decode", "total", "e/dp0", 0.25, None),
        ("decode", "pick", "d/dp1", 1.0, True),  # what follows it is a fallback
        ("prefill", QUEUE, "p/dp0", 1.0, None),
        ("prefill", "pick", "p/dp0", 1.0, True),
    ]


def test_profiles_of_interleaved_requests_are_kept_apart_over_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks_of(monkeypatch, 200)
    found = read(
        tmp_path,
        profile("one", "my-prefill"),
        profile("two", "default"),
        score("one", "ns/a", 0.1),
        score("two", "ns/b", 0.2),
        profile("one", "DECODE"),
        score("two", "ns/b", 0.3),
        score("one", "ns/a", 0.4),
        score("three", "ns/c", 0.5),
    )
    assert [(row[0], row[3]) for row in found] == [
        ("prefill", 0.1),
        ("colocated", 0.2),
        ("colocated", 0.3),
        ("decode", 0.4),
        ("unknown", 0.5),
    ]


@pytest.mark.parametrize(
    ("endpoint", "node"),
    [
        ({"name": "d", "namespace": "ns"}, "d/dp0"),
        ({"Namespace": "ns", "Name": "d-rank-12"}, "d/dp12"),
        ("ns/d", "d/dp0"),
        ("d", "d/dp0"),
        ("10.0.0.1:8000", "10.0.0.1:8000/dp0"),
    ],
)
def test_forms_of_an_endpoint(endpoint: Any, node: str, tmp_path: Path) -> None:
    assert [row[2] for row in read(tmp_path, score("r", endpoint, 0.5))] == [node]


@pytest.mark.parametrize(
    ("time", "after_us"),
    [
        ("2026-01-05T00:00:01Z", 1_000_000),
        ("2026-01-05T00:00:01.250999999Z", 1_250_999),
        ("2026-01-05T02:00:01.5+0200", 1_500_000),
        (1767571201.25, 1_250_000),
        ("1767571201", 1_000_000),
    ],
)
def test_forms_of_a_time(time: Any, after_us: int, tmp_path: Path) -> None:
    path = tmp_path / "epp.log"
    path.write_bytes(log(score("r", "ns/d", 0.5) | {"ts": time}))
    (batch,) = batches(READER, path)
    assert batch.frame["decided_at_us"].to_list() == [START_US + after_us]


@pytest.mark.parametrize("key", ["x-request-id", "requestId", "requestID", "request_id"])
def test_names_of_the_request_id(key: str, tmp_path: Path) -> None:
    path = tmp_path / "epp.log"
    line = score("r", "ns/d", 0.5)
    path.write_bytes(log({key if name == "x-request-id" else name: value for name, value in line.items()}))
    (batch,) = batches(READER, path)
    assert batch.frame["request_id"].to_list() == ["r"]


def test_other_lines_are_skipped_by_kind_and_damaged_ones_named(tmp_path: Path) -> None:
    path = tmp_path / "epp.log"
    damaged = score("r", "ns/d", 0.5) | {"endpoint": {"name": "d"}, "score": "high"}
    path.write_bytes(
        log(
            message("EPP received request"),
            # A text that looks like an object, and an object where other messages have a text.
            message("Request handled", endpoint="{NamespacedName:ns/d Address:10.0.0.1}"),
            message("Completed running profile handler Pick profiles successfully", result={"decode": {}}),
            profile("r", "decode"),
            score("r", "ns/d", 0.5),
            message("Calculated score", None, plugin=QUEUE, endpoint="ns/d", score=0.5),
            message("Completed running picker plugin successfully", result=None),
            damaged,
        )
        + b'{"msg":"cut'
        + b'\n\n{"level":"info"}\n'
    )
    (batch,) = batches(READER, path)
    assert batch.frame.height == 1
    assert batch.skipped == {"other_message": 5, "no_request_id": 1, "no_endpoint": 1}
    assert bad([batch]) == [(8, "score|type"), (9, "json")]


def test_damage_costs_its_line_only_however_long_the_chunk_is(tmp_path: Path) -> None:
    path = tmp_path / "epp.log"
    lines = log(*(score(f"r{i}", "ns/d", 0.5) for i in range(300))).splitlines(keepends=True)
    lines[150] = lines[150].replace(b"0.5", b"0.5.5")
    path.write_bytes(b"".join(lines))
    (batch,) = batches(READER, path)
    assert batch.frame["source_row"].to_list() == [row for row in range(1, 301) if row != 151]
    assert bad([batch]) == [(151, "json")]


def test_scores_far_into_the_log_are_recognised() -> None:
    start = [message("starting", None) for _ in range(20)]
    text = log(*start, score("r", "ns/d", 0.5)).decode()
    assert READER.sniff(Head(text, start))
    assert not READER.sniff(Head(log(*start).decode(), start))
