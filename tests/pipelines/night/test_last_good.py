"""Estimators of earlier nights: only those, the newest first, and only what can be read."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from features.errors import LakeError
from models.honesty.gate import LastGood
from models.honesty.reading import ESTIMATORS
from pipelines.night.last_good import EstimatorStore
from tests.pipelines.nights import estimators

FIRST = date(2026, 3, 1)
GOOD = LastGood(estimators(), dict.fromkeys(ESTIMATORS, "2026-03-02") | {"decode": "2026-02-27"})


def day(of_month: int) -> date:
    return date(2026, 3, of_month)


def test_only_earlier_days_count(tmp_path: Path) -> None:
    store = EstimatorStore(tmp_path, "p")
    assert store.before(day(9), not_before=FIRST) is None
    for of_month in (2, 4, 5):
        store.keep(day(of_month), GOOD)
    for asked, found in ((6, 5), (5, 4), (4, 2), (3, 2)):
        kept = store.before(day(asked), not_before=FIRST)
        assert kept is not None
        assert (kept.day, kept.last) == (day(found), GOOD)
    assert store.before(day(2), not_before=FIRST) is None
    assert store.before(day(4), not_before=day(3)) is None


def test_the_same_night_again_writes_the_same_bytes(tmp_path: Path) -> None:
    store = EstimatorStore(tmp_path, "p")
    path = store.keep(day(2), GOOD)
    first = path.read_bytes()
    assert store.keep(day(2), GOOD).read_bytes() == first
    assert [other.name for other in store.folder.iterdir()] == ["2026-03-02.json"]


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"days": {}, "estimators": {"length": 1}}'])
def test_what_cannot_be_read_is_passed_over(tmp_path: Path, content: bytes) -> None:
    store = EstimatorStore(tmp_path, "p")
    store.keep(day(2), GOOD)
    store.keep(day(3), GOOD).write_bytes(content)
    kept = store.before(day(4), not_before=FIRST)
    assert kept is not None
    assert kept.day == day(2)


def test_pools_are_apart(tmp_path: Path) -> None:
    EstimatorStore(tmp_path, "p").keep(day(2), GOOD)
    assert EstimatorStore(tmp_path, "q").before(day(3), not_before=FIRST) is None
    with pytest.raises(LakeError):
        EstimatorStore(tmp_path, "../p").keep(day(2), GOOD)


def test_files_that_are_passed_over_are_told(tmp_path: Path) -> None:
    store = EstimatorStore(tmp_path, "p")
    store.keep(day(2), GOOD)
    half = store.keep(day(3), GOOD)
    half.write_bytes(half.read_bytes()[:500])
    nested = store.keep(day(4), GOOD)
    nested.write_bytes(b"[" * 100_000)
    folder = store.folder / "2026-03-05.json"
    folder.mkdir()
    binary = store.keep(day(6), GOOD)
    binary.write_bytes(b"\xff\xfe\x00")
    (store.folder / "2026-03-0x.json").write_bytes(b"{}")
    kept, notes = store.search(day(7), not_before=FIRST)
    assert kept is not None
    assert kept.day == day(2)
    for path in (half, nested, folder, binary):
        assert any(str(path) in note for note in notes)
    assert store.search(day(3), not_before=FIRST)[1] == ()
