from __future__ import annotations

from datetime import date
from pathlib import Path

import polars as pl
import pytest

from features.errors import LakeError
from features.lake import Lake
from features.quality import bad_lines
from features.readers.lines import BadLine
from features.schemas import TABLES, with_all_columns
from features.staging import AT, write_part
from features.views import query, view_names

DAY = date(2026, 1, 5)
START_US = 1_767_571_200_000_000


def some_requests(n: int = 5, *, offset: int = 0) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "request_id": [f"r{i + offset}" for i in range(n)],
            "pool": ["a"] * n,
            "arrived_at_us": [START_US + (i + offset) * 1_000 for i in range(n)],
            "prompt_tokens": [100 + i for i in range(n)],
            "block_tokens": [16] * n,
            "block_hashes": [[2**64 - 1 - i, 3] for i in range(n)],
        },
        schema_overrides={"block_hashes": pl.List(pl.UInt64)},
    )


def test_rows_come_back_sorted_with_all_columns(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    frame = some_requests()
    partition = lake.write("requests", DAY, "a", frame.reverse(), sources={"f": "00"})
    assert partition.name == "requests/pool=a/day=2026-01-05"
    assert lake.read("requests", DAY, "a").equals(with_all_columns("requests", frame))
    assert lake.days("requests", "a") == [DAY]
    assert lake.pools() == ["a"]
    assert lake.sources("requests", DAY, "a") == {"f": "00"}
    assert lake.digest("requests", DAY, "a") == partition.digest


def test_a_partition_is_the_same_bytes_from_the_same_rows(tmp_path: Path) -> None:
    frame = some_requests(2_000)
    digests = {
        Lake(tmp_path / name).write("requests", DAY, "a", rows, sources=sources).digest
        for name, rows, sources in (
            ("x", frame, {"f": "1", "g": "2"}),
            ("y", frame.sample(fraction=1, shuffle=True, seed=1), {"g": "2", "f": "1"}),
        )
    }
    assert len(digests) == 1


def test_merge_is_idempotent(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    first = lake.merge("requests", DAY, "a", some_requests(5), sources={"f": "1"})
    again = lake.merge("requests", DAY, "a", some_requests(5), sources={"f": "1"})
    assert (first.added, first.duplicates) == (5, 0)
    assert (again.added, again.duplicates) == (0, 5)
    assert again.partition == first.partition
    late = lake.merge("requests", DAY, "a", some_requests(5, offset=3), sources={"g": "2"})
    assert (late.added, late.duplicates) == (3, 2)
    assert lake.sources("requests", DAY, "a") == {"f": "1", "g": "2"}
    assert late.partition.rows == 8


def test_merge_keeps_the_first_of_a_key_within_one_call(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    twice = pl.concat([some_requests(2), some_requests(2).with_columns(prompt_tokens=pl.lit(9, pl.Int64))])
    assert lake.merge("requests", DAY, "a", twice, sources={}).duplicates == 2
    assert lake.read("requests", DAY, "a")["prompt_tokens"].to_list() == [100, 101]


def test_write_refuses_a_key_that_occurs_twice(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="primary key"):
        Lake(tmp_path).write("requests", DAY, "a", pl.concat([some_requests(1)] * 2), sources={})


def test_an_absent_partition_has_no_rows(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "nowhere")
    assert lake.read("requests", DAY, "a").columns == list(TABLES["requests"].dtypes)
    assert lake.scan("requests", [DAY], "a").collect().is_empty()
    assert lake.days("requests", "a") == []
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(LakeError, match="must exist"):
        lake.digest("requests", DAY, "a")


def test_a_folder_that_names_no_day_is_none_of_the_lakes(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write("requests", DAY, "a", some_requests(), sources={})
    held = lake.path("requests", DAY, "a")
    for name in ("day=garbage", "day=2026-01-05.bak", "day="):
        held.parent.with_name(name).mkdir()
        (held.parent.with_name(name) / held.name).write_bytes(held.read_bytes())
    assert lake.days("requests", "a") == [DAY]
    assert query(tmp_path, "SELECT count(*) AS n FROM requests")["n"].to_list() == [5]


def test_a_damaged_partition_is_an_error_with_its_place(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write("requests", DAY, "a", some_requests(), sources={})
    path = lake.path("requests", DAY, "a")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LakeError, match=r"whole Parquet file.*part\.parquet"):
        lake.read("requests", DAY, "a")


@pytest.mark.parametrize("pool", ["", "../x", "a/b", ".hidden", "a b"])
def test_pool_names_cannot_leave_the_lake(tmp_path: Path, pool: str) -> None:
    with pytest.raises(LakeError, match="pool's name"):
        Lake(tmp_path).path("requests", DAY, pool)


def test_scan_reads_several_days_in_order(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    next_day = date(2026, 1, 6)
    lake.write("requests", DAY, "a", some_requests(3), sources={})
    lake.write("requests", next_day, "a", some_requests(2, offset=10), sources={})
    rows = lake.scan("requests", [DAY, next_day, date(2026, 1, 7)], "a").collect()
    assert rows["request_id"].to_list() == ["r0", "r1", "r2", "r10", "r11"]


def test_sql_sees_day_and_pool_and_hashes_above_2_63(tmp_path: Path) -> None:
    Lake(tmp_path).write("requests", DAY, "a", some_requests(2), sources={})
    rows = query(tmp_path, "SELECT pool, day, block_hashes[1] AS h FROM requests ORDER BY request_id")
    assert rows.rows() == [("a", DAY, 2**64 - 1), ("a", DAY, 2**64 - 2)]


@pytest.mark.parametrize("view", view_names())
@pytest.mark.parametrize("filled", [True, False])
def test_every_view_can_be_read(tmp_path: Path, view: str, filled: bool) -> None:
    if filled:
        Lake(tmp_path).write("requests", DAY, "a", some_requests(2), sources={})
    rows = query(tmp_path, f"SELECT * FROM {view}")
    assert {"table" if view == "quarantine" else "day", "pool"} <= set(rows.columns)


@pytest.mark.parametrize(
    "sql",
    [
        "DROP VIEW requests",
        "SELECT 1; SELECT 2",
        "COPY (SELECT 1) TO 'x.csv'",
        "SELECT * FROM read_csv('/etc/hosts')",
        "no",
    ],
)
def test_sql_only_reads_the_lake(tmp_path: Path, sql: str) -> None:
    with pytest.raises(LakeError):
        query(tmp_path, sql)


def test_what_cannot_be_asked_is_an_error_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"must exist.*absent"):
        query(tmp_path / "absent", "SELECT 1")
    with pytest.raises(LakeError, match="type that can be shown"):
        query(tmp_path, "SELECT INTERVAL 1 DAY")
    Lake(tmp_path).write("requests", DAY, "a", some_requests(2), sources={})
    Lake(tmp_path).path("requests", DAY, "a").write_bytes(b"PAR1")
    with pytest.raises(LakeError, match=r"must run.*part\.parquet"):
        query(tmp_path, "SELECT 1")


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    left = lake.path("requests", DAY, "a").with_name(".part.parquet.123.tmp")
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    lake.write("requests", DAY, "a", some_requests(2), sources={})
    assert not left.exists()


def test_a_connection_reads_views_only(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write("requests", DAY, "a", some_requests(2), sources={})
    with lake.connect() as connection:
        assert connection.execute("SELECT count(*) FROM requests").fetchall() == [(2,)]


def test_a_lake_that_cannot_be_written_is_an_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError, match=r"writable.*file"):
        Lake(tmp_path / "file").write("requests", DAY, "a", some_requests(), sources={})
    with pytest.raises(LakeError, match=r"writable.*file"):
        Lake(tmp_path / "file").write_quarantine("requests", "a", "0" * 64, some_requests())


def test_a_write_that_fails_leaves_the_old_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    before = lake.write("requests", DAY, "a", some_requests(3), sources={})

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(LakeError, match="No space left"):
        lake.write("requests", DAY, "a", some_requests(9), sources={})
    assert lake.digest("requests", DAY, "a") == before.digest
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_full_disk_is_no_fault_of_ours_whoever_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    before = lake.write("requests", DAY, "a", some_requests(3), sources={})
    with pytest.raises(LakeError, match="room on the disk"):
        write_part(Path("/dev/full"), some_requests(3).with_columns(pl.int_range(3).alias(AT)), "requests")

    def full(*_: object) -> None:
        raise pl.exceptions.ComputeError("parquet: underlying IO error: No space left on device (os error 28)")

    monkeypatch.setattr("features.parquet._sink", full)
    with pytest.raises(LakeError, match="room on the disk"):
        lake.write("requests", DAY, "a", some_requests(9), sources={})
    assert lake.digest("requests", DAY, "a") == before.digest


def test_sql_sees_the_quarantine(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert query(tmp_path, "SELECT * FROM quarantine").columns[:3] == ["table", "pool", "rule"]
    bad = bad_lines([BadLine(3, "json"), BadLine(7, "utf8")], "routecal-requests", "log.jsonl")
    lake.write_quarantine("requests", "a", "0" * 64, [bad])
    lake.write_quarantine("node_loads", "b", "1" * 64, [bad.head(1)])
    rows = query(tmp_path, 'SELECT "table", pool, rule, source_row FROM quarantine ORDER BY ALL').rows()
    assert rows == [("node_loads", "b", "json", 3), ("requests", "a", "json", 3), ("requests", "a", "utf8", 7)]
