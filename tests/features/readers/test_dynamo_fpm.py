"""Forward passes of Dynamo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from features.readers.dynamo_fpm import READER
from features.readers.head import Head
from tests.contracts.samples.dynamo_fpm import forward_pass
from tests.features.logs import START_US, lines
from tests.features.readers.reading import bad, batches

START_MS = START_US // 1_000


def read(path: Path, *objects: dict[str, Any]) -> tuple[pl.DataFrame, dict[str, int], list[tuple[int, str]]]:
    path.write_bytes(lines(*objects))
    (batch,) = batches(READER, path)
    return batch.frame, {kind: count for kind, count in batch.skipped.items() if count}, bad([batch])


def test_a_pass_of_each_phase(tmp_path: Path) -> None:
    frame, skipped, wrong = read(
        tmp_path / "fpm.jsonl", forward_pass(7), forward_pass(1_008, prefills=2, decodes=0, wall_time=0.0415)
    )
    assert (skipped, wrong) == ({}, [])
    decode, prefill = frame.rows(named=True)
    assert decode == {
        # 30 ms a pass; the counter stands in the microseconds.
        "observed_at_us": START_US + 7 * 30_000 + 7, "node": "4192/dp1", "phase": "decode", "n_steps": 1,
        "busy_us": 25_000, "sequences": 3.0, "tokens": 3_000.0, "new_tokens": None, "context_tokens": None,
        "source_row": 1,
    }  # fmt: skip
    assert prefill == {
        "observed_at_us": START_US + 1_008 * 30_000 + 8, "node": "4192/dp1", "phase": "prefill", "n_steps": 1,
        "busy_us": 41_500, "sequences": 2.0, "tokens": 256.0, "new_tokens": 256, "context_tokens": 64.0,
        "source_row": 2,
    }  # fmt: skip


def test_passes_of_both_phases_and_of_none_are_counted(tmp_path: Path) -> None:
    idle = forward_pass(3, decodes=0, wall_time=0.0)
    frame, skipped, _ = read(tmp_path / "fpm.jsonl", forward_pass(1, prefills=1), idle, forward_pass(4))
    assert skipped == {"mixed_pass": 1, "idle_heartbeat": 1}
    assert frame["source_row"].to_list() == [3]


def test_every_wrapping_gives_the_same_rows(tmp_path: Path) -> None:
    enveloped = forward_pass(7)
    record = enveloped["event"]
    bare = {"observed_at_unix_ms": record["observed_at_unix_ms"], **record["fpm"]}
    short = {**{key: value for key, value in bare.items() if key != "scheduled_requests"}}
    short["scheduled"] = record["fpm"]["scheduled_requests"]
    frames = [read(tmp_path / "x.jsonl", value)[0] for value in (enveloped, record, bare, short)]
    assert all(frame.equals(frames[0]) for frame in frames)
    assert all(READER.sniff(Head("", [value])) for value in (enveloped, record, bare, short))


def test_passes_without_a_count_or_work_are_bad(tmp_path: Path) -> None:
    frame, _, wrong = read(
        tmp_path / "fpm.jsonl",
        forward_pass(1, counter_id=None),
        forward_pass(2, scheduled_requests=None),
        forward_pass(3),
    )
    assert wrong == [(1, "counter_id|nullability"), (2, "num_prefill_requests|nullability")]
    assert frame.height == 1


def test_a_pass_without_a_time_has_none(tmp_path: Path) -> None:
    bare = {**forward_pass(7)["event"]["fpm"]}
    frame, _, _ = read(tmp_path / "fpm.jsonl", bare)
    assert frame["observed_at_us"].to_list() == [None]  # its rule quarantines it


def test_what_stands_before_the_passes_does_not_say_how_they_are_wrapped(tmp_path: Path) -> None:
    other = [{"request_id": "r", "event": "x"}, {"request_id": "r"}, {"request_id": "s"}]
    frame, _, wrong = read(tmp_path / "fpm.jsonl", *other, forward_pass(1), forward_pass(2))
    assert frame["source_row"].to_list() == [4, 5]
    assert [row for row, _ in wrong] == [1, 2, 3]
