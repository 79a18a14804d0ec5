"""Logs that are damaged, foreign or not files at all."""

from __future__ import annotations

import gzip
import os
import zipfile
from pathlib import Path

import polars as pl
import pytest

from features.errors import SourceError
from features.ingest import ingest
from features.ingest_report import IngestReport
from features.lake import Lake
from features.readers import plain
from tests.features.logs import LINE, START_US, decision, lines, poll, request

FOREIGN = [(log, name) for log in LINE for name in LINE if name != log]


def load(path: Path, lake: Path, name: str = "auto") -> IngestReport:
    report = ingest(path, format=name, pool="a", lake=Lake(lake), starts_at_us=START_US)
    assert report.read == report.accepted + report.quarantined + report.skipped + report.duplicates
    return report


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("log", "name"), FOREIGN)
def test_a_log_read_as_another_format_is_nothing_read(log: str, name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", lines(*(LINE[log](i) for i in range(4))))
    try:
        report = load(path, tmp_path / "lake", name)
    except SourceError:
        pass  # no line of it is of the format
    else:
        assert report.nothing_read
        assert (report.quarantined, report.skipped, report.duplicates) == (report.read, 0, 0)
    assert not list((tmp_path / "lake").rglob("part.parquet"))


def test_repeats_of_a_broken_row_are_nothing_read(tmp_path: Path) -> None:
    broken = request(0, prompt_tokens=-1)
    assert load(write(tmp_path / "x.jsonl", lines(broken, broken, broken)), tmp_path / "lake").nothing_read
    good = write(tmp_path / "y.jsonl", lines(request(1), request(1)))
    load(good, tmp_path / "lake")
    assert not load(good, tmp_path / "lake").nothing_read


def test_a_mark_within_gzip_costs_no_row(tmp_path: Path) -> None:
    log = write(tmp_path / "x.gz", gzip.compress(b"\xef\xbb\xbf" + lines(request(0), request(1))))
    assert load(log, tmp_path / "lake").accepted == 2


@pytest.mark.parametrize("neighbour", [b"", b"\n", b"damaged\n"])
def test_a_key_that_stands_twice_means_its_first_value_whatever_the_neighbours(
    neighbour: bytes, tmp_path: Path
) -> None:
    twice = lines(request(0, prompt_tokens=700)).replace(b"}", b', "prompt_tokens": 900}')
    lake = tmp_path / "lake"
    load(write(tmp_path / "x.jsonl", twice + neighbour), lake)
    (part,) = (lake / "requests").rglob("*.parquet")
    assert pl.read_parquet(part)["prompt_tokens"].to_list() == [700]


@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens", "max_output_tokens", "block_tokens"])
def test_tokens_that_the_twin_cannot_count_are_quarantined(column: str, tmp_path: Path) -> None:
    report = load(write(tmp_path / "x.jsonl", lines(request(0), request(1, **{column: 2**31}))), tmp_path / "lake")
    assert report.rules == {f"{column}|max_exclusive": 1}


def test_counters_beyond_any_engine_are_quarantined(tmp_path: Path) -> None:
    busy, moments = poll(1), poll(2)
    busy["body"]["loads"][0]["total_prefill_busy_us"] = 1e300
    moments["body"]["loads"][0]["decode_moments"][2] = 1e300
    report = load(write(tmp_path / "x.jsonl", lines(poll(0), busy, moments)), tmp_path / "lake")
    assert (report.accepted, report.quarantined) == (1, 2)
    assert set(report.rules) == {"prefill_busy_us|min", "decode_moments|inner_max"}


def test_a_decision_without_candidates_is_no_decision(tmp_path: Path) -> None:
    log = write(tmp_path / "x.jsonl", lines(decision(0), decision(1), decision(2, candidates=None)))
    assert load(log, tmp_path / "lake").rules == {"candidates|nullability": 1}


def test_a_file_that_fails_half_way_leaves_no_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "CHUNK_BYTES", 2_000)
    monkeypatch.setattr(plain, "LINE_BYTES_MAX", 4_000)
    twice = decision(0)
    twice["candidates"] = [*twice["candidates"], twice["candidates"][0]]
    folder = tmp_path / "logs"
    folder.mkdir()
    write(folder / "a.jsonl", lines(*(twice for _ in range(5))) + b"x" * 10_000)
    write(folder / "b.jsonl", lines(decision(1)))
    report = load(folder, tmp_path / "lake")
    assert (report.read, report.accepted, report.quarantined, report.duplicates) == (3, 2, 1, 0)


def test_an_answer_without_series_has_no_rows(tmp_path: Path) -> None:
    log = write(tmp_path / "x.json", b'{"status": "success", "data": {"resultType": "matrix", "result": []}}')
    with pytest.raises(SourceError, match="got '0 other lines'"):
        load(log, tmp_path / "lake")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "x.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(SourceError, match="regular file"):
        load(pipe, tmp_path / "lake")


def test_a_name_that_no_file_can_have_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="reachable"):
        load(tmp_path / ("a" * 5_000), tmp_path / "lake")


def test_a_member_of_an_archive_is_named_as_the_archive_names_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("a/ok.jsonl", lines(request(0)))
        archive.writestr("empty.jsonl", b"")
    report = load(tmp_path / "z.zip", tmp_path / "lake")
    assert (report.accepted, report.quarantined) == (1, 1)
    assert "at z.zip/empty.jsonl;" in report.unreadable["z.zip/empty.jsonl"]
