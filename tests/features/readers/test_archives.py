"""Zip archives count as folders."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from features.errors import SourceError
from features.ingest import ingest
from features.ingest_report import IngestReport
from features.lake import Lake
from tests.features.logs import NAME_KEY, START_US, lines, poll, request
from tests.features.shared import real_data


def load(path: Path, lake: Path) -> IngestReport:
    return ingest(path, format="auto", pool="a", lake=Lake(lake), starts_at_us=START_US, name_key=NAME_KEY)


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as held:
        for name, content in members.items():
            held.writestr(name.replace("__", "/") + ".jsonl", content)
        held.writestr("notes.md", "no log")
        held.writestr(".hidden.jsonl", "no log")
    return path


def test_members_are_read_like_files_of_a_folder(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.zip", a__one=lines(request(0), request(1)), two=lines(poll(0)))
    report = load(path, tmp_path / "lake")
    assert (report.files, report.accepted, report.format) == (2, 3, "routecal-requests,sglang-loads")
    lake = Lake(tmp_path / "lake")
    (day,) = lake.days("requests", "a")
    assert lake.read("requests", day, "a")["source_file"].unique().to_list() == ["x.zip/a/one.jsonl"]
    assert not (tmp_path / "lake" / ".staging").exists()
    again = load(tmp_path / "x.zip", tmp_path / "lake")
    assert (again.accepted, again.duplicates) == (0, 3)


def test_members_cannot_leave_their_folder(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as held:
        held.writestr("../../outside.jsonl", lines(request(0)))  # hidden
        held.writestr("/outside.jsonl", lines(request(1)))
    assert load(tmp_path / "x.zip", tmp_path / "deep" / "lake").accepted == 1
    assert not list(tmp_path.rglob("outside*"))


def test_a_damaged_or_empty_archive_is_an_error_with_its_place(tmp_path: Path) -> None:
    whole = archive(tmp_path / "x.zip", one=lines(*(request(i) for i in range(200)))).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r"whole and open.*cut\.zip"):
        load(tmp_path / "cut.zip", tmp_path / "lake")
    with pytest.raises(SourceError, match="must hold a log"):
        load(archive(tmp_path / "none.zip"), tmp_path / "lake")
    assert not (tmp_path / "lake" / ".staging").exists()


def test_the_public_archive_of_benchmark_results(tmp_path: Path) -> None:
    report = load(real_data("aibrix-router-bench", "benchmark_output_v0.3.0_20250519.zip"), tmp_path / "lake")
    assert report.files == 66
    assert report.format == "multi-round-qa"
    assert report.read == report.accepted + report.quarantined + report.duplicates
    assert report.accepted > 10_000
