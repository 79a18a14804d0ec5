"""Merging in memory and beyond it give the same bytes."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features import merge
from features.lake import Lake
from features.schemas import with_all_columns
from features.staging import Staging
from tests.features.logs import START_US

DAY = date(2026, 1, 5)


@pytest.fixture(params=["in memory", "beyond memory"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "beyond memory":
        monkeypatch.setattr(merge, "MEMORY_ROWS", -1)


def rows(ids: list[int], *, tokens: int = 100) -> pl.DataFrame:
    frame = pl.DataFrame(
        {
            "request_id": [f"r{i}" for i in ids],
            "pool": ["a"] * len(ids),
            "arrived_at_us": [START_US + (i * 7919 % 1_000) * 1_000 for i in ids],
            "prompt_tokens": [tokens + i for i in ids],
            "block_hashes": pl.Series([[2**64 - 1 - i, i] for i in ids], dtype=pl.List(pl.UInt64)),
            "block_tokens": [16] * len(ids),
            "source": ["derived" if i % 5 == 0 else "log" for i in ids],
        }
    )
    return with_all_columns("requests", frame)


def merged(root: Path, pieces: list[list[int]], *, spill: bool, replacing: str | None = None) -> tuple[int, int, str]:
    added = duplicates = 0
    lake = Lake(root)
    digest = ""
    for number, ids in enumerate(pieces):
        with Staging(root) as staging:
            staged = staging.file()
            for at in range(0, len(ids), 3):
                staged.add("requests", DAY, rows(ids[at : at + 3], tokens=100 + number))
            if spill:
                staged.spill()
            parts = staged.parts.get(("requests", DAY), [])
            result = lake.merge_staged("requests", DAY, "a", parts, staging, sources={"f": "1"}, replacing=replacing)
        added += result.added
        duplicates += result.duplicates
        digest = result.partition.digest
    return added, duplicates, digest


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), min_size=1, max_size=4),
    st.sampled_from([None, "derived"]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_ways_agree(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[list[int]], replacing: str | None
) -> None:
    found = {
        merged(tmp_path_factory.mktemp("lake"), pieces, spill=spill, replacing=replacing) for spill in (False, True)
    }
    assert len(found) == 1
    added, duplicates, _ = found.pop()
    if replacing is None:
        assert added == len({i for piece in pieces for i in piece})
        assert added + duplicates == sum(map(len, pieces))


@pytest.mark.usefixtures("_way")
def test_rows_of_a_derivation_give_way_to_new_ones(tmp_path: Path) -> None:
    merged(tmp_path, [[0, 1, 2, 5]], spill=False)
    merged(tmp_path, [[5]], spill=True, replacing="derived")
    held = Lake(tmp_path).read("requests", DAY, "a")
    assert held.sort("request_id")["request_id"].to_list() == ["r1", "r2", "r5"]


def test_staging_leaves_nothing_and_clears_what_was_left(tmp_path: Path) -> None:
    left = tmp_path / ".staging" / "0"
    left.mkdir(parents=True)
    (left / "000000.parquet").write_bytes(b"cut")
    (tmp_path / ".staging" / "0.lock").touch()
    with Staging(tmp_path) as staging, Staging(tmp_path) as other:
        staged, theirs = staging.file(), other.file()
        for file in (staged, theirs):
            file.add("requests", DAY, rows([1, 2]))
            file.spill()
        assert staging.folder != other.folder
        assert [frame.height for frame in theirs.frames("requests")] == [2]
        staged.drop()
        assert not list(staging.folder.glob("*.parquet"))
    assert not (tmp_path / ".staging").exists()


def test_parts_that_know_different_columns_become_one_partition(tmp_path: Path) -> None:
    with Staging(tmp_path) as staging:
        staged = staging.file()
        staged.add("requests", DAY, rows([1, 2]).with_columns(tenant=pl.lit("t")))
        staged.spill()
        staged.add("requests", DAY, rows([3]).with_columns(app=pl.lit("x"), block_hashes=None, block_tokens=None))
        staged.spill()
        parts = staged.parts["requests", DAY]
        assert len(parts) == 2
        Lake(tmp_path).merge_staged("requests", DAY, "a", parts, staging, sources={})
    held = Lake(tmp_path).read("requests", DAY, "a").sort("request_id")
    assert held.select("tenant", "app").rows() == [("t", None), ("t", None), (None, "x")]
    assert held["block_hashes"].list.len().to_list() == [2, 2, None]
