"""What every reader must do, whatever its format. A new one is done when it is registered, has a sample, and passes."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import zstandard

from features.errors import RoutecalError, SourceError
from features.ingest import ingest
from features.ingest_report import IngestReport
from features.lake import Lake
from features.readers.base import ReadContext
from features.readers.registry import READERS, sniff
from features.schemas import TABLES
from tests.contracts.sample import SECRET, Sample, all_samples
from tests.features.logs import NAME_KEY, START_US, lines, mooncake, request

SAMPLES = all_samples()
NO_LINE = b"@@ no line of any format @@\n"
JSON_FAULTS = (b'{"cut": \n', b'{"two": 1} {"objects": 2}\n', b'{"number": 1e}\n')


def those(holds: Callable[[Sample], object]) -> pytest.MarkDecorator:
    found = [sample for sample in SAMPLES.values() if holds(sample)]
    return pytest.mark.parametrize("sample", found, ids=[sample.name for sample in found])


EVERY = those(lambda sample: sample.name)
EACH_LINE = those(lambda sample: sample.by_line)
JSON_LINES = those(lambda sample: sample.by_line and sample.records(1)[0].startswith(b"{"))
TYPED = those(lambda sample: sample.wrong_type)
WITH_TEXT = those(lambda sample: sample.secret)


def load(path: Path, lake: Path, name: str = "auto") -> IngestReport:
    report = ingest(path, format=name, pool="a", lake=Lake(lake), starts_at_us=START_US, name_key=NAME_KEY)
    assert report.read == report.accepted + report.quarantined + report.skipped + report.duplicates
    assert sum(report.rules.values()) == report.quarantined
    assert sum(report.skipped_kinds.values()) == report.skipped
    assert set(report.samples) == set(report.rules)
    return report


def stored(lake: Path, table: str) -> pl.DataFrame:
    held = Lake(lake)
    return held.scan(table, held.days(table, "a"), "a").collect()


def tables(lake: Path) -> dict[str, pl.DataFrame]:
    return {table: stored(lake, table) for table in TABLES}


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_every_reader_has_a_sample() -> None:
    assert set(SAMPLES) == set(READERS)


@EVERY
def test_rows_reach_the_lake_and_a_second_time_add_nothing(sample: Sample, tmp_path: Path) -> None:
    log = write(tmp_path / "log.txt", sample.make(5))
    first = load(log, tmp_path / "lake")
    assert first.format == sample.name
    assert first.accepted == 5 * sample.rows
    held = {path: path.read_bytes() for path in (tmp_path / "lake").rglob("*.parquet")}
    again = load(log, tmp_path / "lake")
    assert (again.accepted, again.duplicates) == (0, first.accepted)
    assert again.partitions == first.partitions
    assert stored(tmp_path / "lake", READERS[sample.name].table).height == first.accepted
    assert {path: path.read_bytes() for path in (tmp_path / "lake").rglob("*.parquet")} == held


@EACH_LINE
def test_a_grown_file_adds_its_new_rows(sample: Sample, tmp_path: Path) -> None:
    load(write(tmp_path / "log.txt", sample.make(4)), tmp_path / "lake", sample.name)
    grown = load(write(tmp_path / "log.txt", sample.make(9)), tmp_path / "lake", sample.name)
    assert (grown.accepted, grown.duplicates) == (5 * sample.rows, 4 * sample.rows)
    load(tmp_path / "log.txt", tmp_path / "other", sample.name)
    for table, rows in tables(tmp_path / "other").items():
        assert rows.equals(stored(tmp_path / "lake", table)), table


@EVERY
def test_packing_and_a_missing_last_newline_change_nothing(sample: Sample, tmp_path: Path) -> None:
    content = sample.make(5)
    half = len(content) // 2
    last = content.rstrip(b"\n")
    packings = {
        "plain": content,
        "gzip": gzip.compress(content[:half]) + gzip.compress(last[half:]),
        "zstd": zstandard.compress(content[:half]) + zstandard.compress(last[half:]),
    }
    found = {}
    for packing, packed in packings.items():
        report = load(write(tmp_path / "x.txt", packed), tmp_path / packing)
        found[packing] = (report, tables(tmp_path / packing))
    for packing in ("gzip", "zstd"):
        assert found[packing][0] == found["plain"][0]
        for table, rows in found["plain"][1].items():
            assert rows.equals(found[packing][1][table]), table


@EACH_LINE
def test_dirty_lines_are_quarantined_with_their_row_and_cost_no_good_one(sample: Sample, tmp_path: Path) -> None:
    good = sample.records(6)
    dirty = [
        good[0],
        b"\xff\xfe\n",
        good[1],
        b"\n",
        sample.broken,
        good[2],
        NO_LINE,
        *good[3:],
    ]
    clean = load(write(tmp_path / "x.txt", sample.make(6)), tmp_path / "clean")
    report = load(write(tmp_path / "x.txt", sample.header + b"".join(dirty)), tmp_path / "dirty", sample.name)
    assert report.accepted == clean.accepted
    assert report.quarantined - 2 >= 1
    (path,) = (tmp_path / "dirty" / "quarantine").rglob("*.parquet")
    held = pl.read_parquet(path)
    first = 1 + sample.header.count(b"\n")
    assert set(held["source_row"]) == {first + 1, first + 4, first + 6}
    assert held["source_file"].unique().to_list() == ["x.txt"]
    assert held["reason"].null_count() == 0
    for table, rows in tables(tmp_path / "clean").items():
        if "source_row" not in rows.columns:
            assert rows.equals(stored(tmp_path / "dirty", table)), table


@JSON_LINES
def test_faults_of_json_lines_have_names(sample: Sample, tmp_path: Path) -> None:
    good = sample.records(4)
    content = b"".join((good[0], JSON_FAULTS[0], good[1], b"\xff\xfe\n", b"[1, 2]\n", *JSON_FAULTS[1:], *good[2:]))
    report = load(write(tmp_path / "x.txt", sample.header + content), tmp_path / "lake", sample.name)
    assert report.rules == {"json": 3, "utf8": 1, "json_object": 1}
    (path,) = (tmp_path / "lake" / "quarantine").rglob("*.parquet")
    assert pl.read_parquet(path).filter(pl.col("rule") == "json")["source_row"].to_list() == [2, 6, 7]


@TYPED
def test_a_wrong_type_is_quarantined_by_its_column(sample: Sample, tmp_path: Path) -> None:
    assert sample.wrong_type is not None
    wrong, rule = sample.wrong_type
    report = load(write(tmp_path / "x.txt", sample.make(4) + wrong), tmp_path / "lake", sample.name)
    assert report.rules == {rule: 1}


@EACH_LINE
@pytest.mark.parametrize("pack", [lambda b: gzip.compress(b, 1), zstandard.compress], ids=["gzip", "zstd"])
def test_a_cut_stream_gives_what_it_holds_and_says_so(sample: Sample, pack: object, tmp_path: Path) -> None:
    packed = pack(sample.make(6_000))  # type: ignore[operator]
    report = load(write(tmp_path / "x", packed[: len(packed) * 9 // 10]), tmp_path / "lake", sample.name)
    assert report.accepted > 0
    assert report.rules == {"file_cut_short": 1}
    with pytest.raises(SourceError):
        load(write(tmp_path / "y", packed[:12]), tmp_path / "lake2", sample.name)


@EACH_LINE
def test_a_damaged_gzip_gives_what_stands_before_the_fault(sample: Sample, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(sample.make(6_000), 1))
    packed[len(packed) * 3 // 4 : len(packed) * 3 // 4 + 40] = b"\xff" * 40
    report = load(write(tmp_path / "x.gz", bytes(packed)), tmp_path / "lake", sample.name)
    assert report.accepted > 0
    assert report.rules["file_cut_short"] == 1


@EVERY
def test_line_ends_and_marks_of_other_systems_are_read(sample: Sample, tmp_path: Path) -> None:
    content = sample.make(5)
    plain = load(write(tmp_path / "x.txt", content), tmp_path / "plain")
    windows = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")
    assert load(write(tmp_path / "x.txt", windows), tmp_path / "windows") == plain


@EVERY
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n \n",
        gzip.compress(b""),
        zstandard.compress(b""),
        b"hello\nworld\n",
        b"{}\n{}\n"[:1],
        bytes(range(256)) * 20,
        b"\x1f\x8bnot gzip",
        b"\x28\xb5\x2f\xfdnot zstd",
        b"[]\n5\n",
    ],
    ids=["empty", "blank", "empty gzip", "empty zstd", "text", "cut", "binary", "bad gzip", "bad zstd", "no objects"],
)
def test_a_file_without_a_row_is_an_error(sample: Sample, content: bytes, tmp_path: Path) -> None:
    log = write(tmp_path / "x.txt", content)
    for chosen in (sample.name, "auto"):
        with pytest.raises(SourceError) as error:
            load(log, tmp_path / "lake", chosen)
        assert str(log) in str(error.value)
    assert not list((tmp_path / "lake").rglob("*.parquet"))


@EACH_LINE
def test_chunks_give_the_same_rows_as_one(sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write(tmp_path / "x.txt", sample.make(60) + NO_LINE)
    whole = load(log, tmp_path / "whole", sample.name)
    monkeypatch.setattr("features.readers.plain.CHUNK_BYTES", 700)
    chunked = load(log, tmp_path / "chunked", sample.name)
    assert whole == chunked
    for table, rows in tables(tmp_path / "whole").items():
        assert rows.equals(stored(tmp_path / "chunked", table)), table


@WITH_TEXT
def test_text_of_prompts_and_names_of_users_do_not_pass(sample: Sample, tmp_path: Path) -> None:
    assert SECRET in sample.secret
    content = sample.make(3) + sample.secret if sample.by_line else sample.secret
    load(write(tmp_path / "x.txt", content), tmp_path / "lake", sample.name)
    load(write(tmp_path / "x.txt", content + NO_LINE), tmp_path / "slow", sample.name)
    for path in tmp_path.rglob("*.parquet"):
        if ".private" not in path.parts:
            assert SECRET.decode() not in pl.read_parquet(path).write_json(), path


@EVERY
def test_readers_yield_columns_of_their_table(sample: Sample, tmp_path: Path) -> None:
    log = write(tmp_path / "x.txt", sample.make(5))
    assert sniff(log).reader is READERS[sample.name]
    reader = READERS[sample.name]
    for batch in reader.read(log, ReadContext("a", "x.txt", START_US)):
        extra = set(batch.frame.columns) - set(TABLES[reader.table].dtypes) - {"source_row"}
        assert not {name for name in extra if not name.startswith("header:")}
        assert batch.frame["source_row"].null_count() == 0


def test_auto_refuses_what_fits_two_formats_or_none(tmp_path: Path) -> None:
    both = [{**request(i), **mooncake(i)} for i in range(3)]
    with pytest.raises(SourceError, match=r"fit one format.*routecal-requests.*mooncake"):
        sniff(write(tmp_path / "both.jsonl", lines(*both)))
    with pytest.raises(SourceError, match="known format"):
        sniff(write(tmp_path / "none.jsonl", lines({"a": 1})))
    with pytest.raises(SourceError, match="format must be known"):
        ingest(tmp_path, format="csv", pool="a", lake=Lake(tmp_path))


def test_a_relative_clock_needs_its_start(tmp_path: Path) -> None:
    log = write(tmp_path / "x.jsonl", SAMPLES["mooncake"].make(5))
    with pytest.raises(SourceError, match="--starts-at"):
        ingest(log, format="auto", pool="a", lake=Lake(tmp_path / "lake"))


def test_errors_are_ours(tmp_path: Path) -> None:
    with pytest.raises(RoutecalError):
        ingest(tmp_path / "absent.jsonl", format="auto", pool="a", lake=Lake(tmp_path))
    with pytest.raises(RoutecalError):
        ingest(tmp_path / "absent.jsonl", format="auto", pool="../a", lake=Lake(tmp_path))
