"""What every reader must do, whatever its format. A new reader is done when it is registered and passes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.errors import RoutecalError, SourceError
from features.ingest import IngestReport, ingest
from features.lake import Lake
from features.readers.base import ReadContext
from features.readers.registry import READERS, sniff
from tests.features.logs import BROKEN, LINE, START_US, lines

FORMATS = pytest.mark.parametrize("name", list(READERS))


def load(path: Path, lake: Path, name: str = "auto") -> IngestReport:
    report = ingest(path, format=name, pool="a", lake=Lake(lake), starts_at_us=START_US)
    assert report.read == report.accepted + report.quarantined + report.skipped + report.duplicates
    assert sum(report.rules.values()) == report.quarantined
    assert sum(report.skipped_kinds.values()) == report.skipped
    return report


def stored(lake: Path, table: str) -> pl.DataFrame:
    held = Lake(lake)
    return held.scan(table, held.days(table, "a"), "a").collect()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def sample(name: str, n: int = 5) -> list[dict[str, Any]]:
    return [LINE[name](i) for i in range(n)]


@FORMATS
def test_rows_reach_the_lake_and_a_second_time_add_nothing(name: str, tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", lines(*sample(name)))
    first = load(log, tmp_path / "lake")
    assert first.format == name
    assert first.accepted == first.read >= 5
    again = load(log, tmp_path / "lake")
    assert (again.accepted, again.duplicates) == (0, first.accepted)
    assert again.partitions == first.partitions
    assert stored(tmp_path / "lake", READERS[name].table).height == first.accepted


@FORMATS
def test_gzip_and_a_missing_last_newline_change_nothing(name: str, tmp_path: Path) -> None:
    content = lines(*sample(name))
    (tmp_path / "a").mkdir()
    plain = load(write(tmp_path / "a" / "x.jsonl", content), tmp_path / "l1")
    two_members = gzip.compress(content[:100]) + gzip.compress(content[100:].rstrip(b"\n"))
    packed = load(write(tmp_path / "x.jsonl", two_members), tmp_path / "l2")
    assert plain == packed
    table = READERS[name].table
    assert stored(tmp_path / "l1", table).equals(stored(tmp_path / "l2", table))


@FORMATS
def test_dirty_lines_are_quarantined_with_their_row_and_cost_no_good_one(name: str, tmp_path: Path) -> None:
    good = sample(name)
    content = b"".join(
        (
            lines(good[0]),
            b'{"cut": \n',
            lines(good[1]),
            b"\xff\xfe\n",
            b"[1, 2]\n",
            b"\n",
            lines(BROKEN[name]),
            b'{"deep": ' + b"[" * 5_000 + b"]" * 5_000 + b"}\n",
            b'{"number": NaN}\n',
            *(lines(value) for value in good[2:]),
        )
    )
    clean = load(write(tmp_path / "clean.jsonl", lines(*good)), tmp_path / "clean")
    dirty = load(write(tmp_path / "dirty.jsonl", content), tmp_path / "dirty", name)
    assert dirty.accepted == clean.accepted
    assert dirty.rules["json"] == 3
    assert (dirty.rules["utf8"], dirty.rules["json_object"]) == (1, 1)
    broken_rows = dirty.quarantined - 5
    assert broken_rows >= 1
    (path,) = (tmp_path / "dirty" / "quarantine").rglob("*.parquet")
    held = pl.read_parquet(path)
    assert held.filter(pl.col("rule") == "json")["source_row"].to_list() == [2, 8, 9]
    assert set(held.filter(~pl.col("rule").is_in(["json", "utf8", "json_object"]))["source_row"]) == {7}
    assert held["source_file"].unique().to_list() == ["dirty.jsonl"]


@FORMATS
def test_a_wrong_type_is_quarantined_by_its_column(name: str, tmp_path: Path) -> None:
    good = sample(name)
    wrong = json.loads(json.dumps(good[0]))
    column = {"sglang-loads": "target", "dynamo-request-trace": "event", "mooncake": "hash_ids"}.get(name, "request_id")
    wrong[column] = {"text": 5} if column != "event" else 5
    report = load(write(tmp_path / "x.jsonl", lines(*good[1:], wrong)), tmp_path / "lake", name)
    assert report.rules == {f"{column}|type": 1}


@FORMATS
def test_a_cut_gzip_gives_what_it_holds_and_says_so(name: str, tmp_path: Path) -> None:
    content = b"".join(lines(LINE[name](i)) for i in range(600))
    packed = gzip.compress(content, 1)
    report = load(write(tmp_path / "x.gz", packed[: len(packed) // 2]), tmp_path / "lake")
    assert report.accepted > 0
    assert report.rules == {"file_cut_short": 1}
    with pytest.raises(SourceError):
        load(write(tmp_path / "y.gz", packed[:12]), tmp_path / "lake2", name)


@FORMATS
def test_a_damaged_gzip_gives_what_stands_before_the_fault(name: str, tmp_path: Path) -> None:
    packed = bytearray(
        gzip.compress(b"".join(lines(LINE[name](i, request_id=f"{i * 7919 % 9973:x}")) for i in range(3_000)), 1)
    )
    packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    report = load(write(tmp_path / "x.gz", bytes(packed)), tmp_path / "lake", name)
    assert report.accepted > 0
    assert report.rules["file_cut_short"] == 1


@FORMATS
def test_line_ends_and_marks_of_other_systems_are_read(name: str, tmp_path: Path) -> None:
    content = lines(*sample(name))
    plain = load(write(tmp_path / "x.jsonl", content), tmp_path / "plain")
    windows = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")
    assert load(write(tmp_path / "x.jsonl", windows), tmp_path / "windows") == plain


@FORMATS
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n \n",
        gzip.compress(b""),
        b"hello\nworld\n",
        b"{}\n{}\n"[:1],
        bytes(range(256)) * 20,
        b"\x1f\x8bnot gzip",
        b"[]\n5\n",
    ],
    ids=["empty", "blank", "empty gzip", "text", "cut", "binary", "bad gzip", "no objects"],
)
def test_a_file_without_a_row_is_an_error(name: str, content: bytes, tmp_path: Path) -> None:
    log = write(tmp_path / "x.jsonl", content)
    for chosen in (name, "auto"):
        with pytest.raises(SourceError) as error:
            load(log, tmp_path / "lake", chosen)
        assert str(log) in str(error.value)
    assert not (tmp_path / "lake").exists()


@FORMATS
def test_chunks_give_the_same_rows_as_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write(tmp_path / "x.jsonl", b"".join(lines(LINE[name](i)) for i in range(60)) + b"bad\n")
    whole = load(log, tmp_path / "whole")
    monkeypatch.setattr("features.readers.lines.read_lines.__kwdefaults__", {"repair": None, "chunk_bytes": 700})
    chunked = load(log, tmp_path / "chunked")
    assert whole == chunked
    table = READERS[name].table
    assert stored(tmp_path / "whole", table).equals(stored(tmp_path / "chunked", table))


@FORMATS
def test_text_of_prompts_does_not_pass(name: str, tmp_path: Path) -> None:
    secret = "the prompt that nobody may keep"
    rows = [{**value, "prompt": secret, "messages": [{"content": secret}]} for value in sample(name)]
    rows[-1][next(iter(rows[-1]))] = [secret]  # goes the slow way, into quarantine
    load(write(tmp_path / "x.jsonl", lines(*rows)), tmp_path / "lake")
    for path in (tmp_path / "lake").rglob("*.parquet"):
        assert secret not in pl.read_parquet(path).write_json()


@FORMATS
def test_readers_yield_columns_of_their_table(name: str, tmp_path: Path) -> None:
    log = write(tmp_path / "x.jsonl", lines(*sample(name)))
    assert sniff(log).reader is READERS[name]
    reader = READERS[name]
    batches = list(reader.read(log, ReadContext("a", "x.jsonl", START_US)))
    assert [row for batch in batches for row in batch.frame["source_row"]] == [
        row for row in range(1, 6) for _ in range(sum(batch.frame.height for batch in batches) // 5)
    ]


def test_auto_refuses_what_fits_two_formats_or_none(tmp_path: Path) -> None:
    both = [{**LINE["routecal-requests"](i), **LINE["mooncake"](i)} for i in range(3)]
    with pytest.raises(SourceError, match=r"fit one format.*routecal-requests.*mooncake"):
        sniff(write(tmp_path / "both.jsonl", lines(*both)))
    with pytest.raises(SourceError, match="known format"):
        sniff(write(tmp_path / "none.jsonl", lines({"a": 1})))
    with pytest.raises(SourceError, match="format must be known"):
        ingest(tmp_path, format="csv", pool="a", lake=Lake(tmp_path))


def test_a_relative_clock_needs_its_start(tmp_path: Path) -> None:
    log = write(tmp_path / "x.jsonl", lines(*sample("mooncake")))
    with pytest.raises(SourceError, match="--starts-at"):
        ingest(log, format="auto", pool="a", lake=Lake(tmp_path / "lake"))


def test_errors_are_ours(tmp_path: Path) -> None:
    with pytest.raises(RoutecalError):
        ingest(tmp_path / "absent.jsonl", format="auto", pool="a", lake=Lake(tmp_path))
    with pytest.raises(RoutecalError):
        ingest(tmp_path / "absent.jsonl", format="auto", pool="../a", lake=Lake(tmp_path))
