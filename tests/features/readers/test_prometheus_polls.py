"""Recorded scrapes."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from features.readers.head import Head
from features.readers.prometheus_polls import READER
from tests.contracts.samples.prometheus_polls import scrape
from tests.features.logs import START_US
from tests.features.readers.reading import bad, batches, chunks_of

TWO_RANKS = (
    "# TYPE sglang:num_running_reqs gauge\n"
    'sglang:num_running_reqs{dp_rank="0",engine_type="decode",tp_rank="0"} 3.0\n'
    'sglang:num_running_reqs{dp_rank="1",engine_type="decode",tp_rank="0"} 4.0\n'
    'sglang:utilization{dp_rank="1"} -1.0\r\n'
)


def read(path: Path, *lines: bytes) -> tuple[pl.DataFrame, dict[str, int], list[tuple[int, str]]]:
    path.write_bytes(b"".join(lines))
    (batch,) = batches(READER, path)
    return batch.frame, {kind: count for kind, count in batch.skipped.items() if count}, bad([batch])


def test_samples_are_of_the_polls_time_and_target(tmp_path: Path) -> None:
    frame, skipped, wrong = read(tmp_path / "m.jsonl", scrape(0), scrape(1, body=TWO_RANKS, target="https://d1:8000/m"))
    assert (skipped, wrong) == ({"comment": 1, "unused_family": 1}, [])
    assert frame["node"].to_list() == [*["d0:8000/dp0"] * 3, "d1:8000/dp0", "d1:8000/dp1"]
    assert [at - START_US for at in frame["observed_at_us"]] == [0, 0, 0, 5_000_000, 5_000_000]
    assert frame["source_row"].to_list() == [1, 1, 1, 2, 2]
    assert frame["value"].to_list() == [3.0, 0.0, 0.0, 3.0, 4.0]
    assert set(frame["labels"].to_list()[3:]) == {'engine_type="decode",tp_rank="0"'}


def test_failed_and_empty_polls_are_counted(tmp_path: Path) -> None:
    frame, skipped, wrong = read(
        tmp_path / "m.jsonl",
        scrape(0, status=0, body="# error: timed out"),
        scrape(1, status=503, body={"detail": "overloaded"}),
        scrape(2, body="# error: not UTF-8"),
        scrape(3, body="\n  \n"),
        scrape(4, body=None),
        scrape(5, target=None),
        scrape(6, polled_at_us=None),
        scrape(7, body="vllm:num_requests_running{ 5\nvllm:num_requests_waiting 1\n"),
    )
    assert skipped == {"failed_poll": 4, "no_samples": 1}
    assert wrong == [(6, "target|nullability"), (7, "polled_at_us|nullability"), (8, "exposition")]
    assert frame["metric"].to_list() == ["vllm:num_requests_waiting"]


def test_chunks_change_nothing(tmp_path: Path, monkeypatch: object) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"".join(scrape(i) for i in range(50)))
    whole = pl.concat([batch.frame for batch in batches(READER, path)])
    chunks_of(monkeypatch, 900)  # type: ignore[arg-type]
    assert pl.concat([batch.frame for batch in batches(READER, path)]).equals(whole)
    assert whole.height == 150


def test_polls_of_loads_are_another_format() -> None:
    assert READER.sniff(Head("", [json.loads(scrape(0))]))
    assert READER.sniff(Head("", [json.loads(scrape(0, status=0, body="# error: refused"))]))
    assert not READER.sniff(Head("", [json.loads(scrape(0, body={"loads": []}))]))
