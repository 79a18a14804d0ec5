"""Workloads on disk: equal when read back, whole or not there, never read-only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from policies.store_workloads import INDEX, cached_workload, load_workload, save_workload
from policies.twin.segments import cut, segments_of
from policies.twin.workload import Arrivals, Workload
from tests.policies import world
from tests.policies.twin.scenarios import make_arrivals


def known(n: int = 40) -> Workload:
    return replace(world.workload(n), arrivals=make_arrivals(np.random.default_rng(1), n))


def assert_equal(before: Workload, after: Workload | None) -> None:
    assert after is not None
    for f in fields(Workload):
        if f.name not in ("request_ids", "arrivals"):
            np.testing.assert_array_equal(getattr(before, f.name), getattr(after, f.name), strict=True)
    for f in fields(Arrivals) if before.arrivals is not None else ():
        np.testing.assert_array_equal(getattr(before.arrivals, f.name), getattr(after.arrivals, f.name), strict=True)


@pytest.mark.parametrize("make", [known, lambda: world.workload(7), lambda: world.workload(0)])
def test_what_is_kept_comes_back(tmp_path: Path, make: Callable[[], Workload]) -> None:
    before = make()
    save_workload(tmp_path / "w", before)
    after = load_workload(tmp_path / "w")
    assert_equal(before, after)
    assert after is not None
    assert type(after.block_ids) is np.ndarray
    for column, wanted in zip(segments_of(after), cut(before.block_ids, before.block_offset), strict=True):
        np.testing.assert_array_equal(column, wanted, strict=True)
    assert after.block_ids.flags.writeable
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


def test_a_change_stays_in_the_process(tmp_path: Path) -> None:
    save_workload(tmp_path / "w", world.workload(7))
    first = load_workload(tmp_path / "w")
    assert first is not None
    first.arrival_ns[:] = 0
    assert_equal(world.workload(7), load_workload(tmp_path / "w"))


def cut_off(folder: Path) -> None:
    path = folder / "block_ids.npy"
    path.write_bytes(path.read_bytes()[:-1])


def flip(folder: Path) -> None:
    path = folder / "prompt_tokens.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def lose(folder: Path) -> None:
    (folder / "scored.npy").unlink()


def no_index(folder: Path) -> None:
    (folder / INDEX).unlink()


def bad_index(folder: Path) -> None:
    (folder / INDEX).write_text("[1]")


def old_format(folder: Path) -> None:
    path = folder / INDEX
    path.write_text(path.read_text().replace('"format": 2', '"format": 1'))


@pytest.mark.parametrize("damage", [cut_off, flip, lose, no_index, bad_index, old_format])
def test_damaged_is_not_there_and_is_made_anew(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    calls = []

    def make() -> Workload:
        calls.append(1)
        return known()

    assert cached_workload(tmp_path, "k", make)[1] is False
    assert cached_workload(tmp_path, "k", make)[1] is True
    damage(tmp_path / "k")
    assert load_workload(tmp_path / "k") is None
    workload, found = cached_workload(tmp_path, "k", make)
    assert_equal(known(), workload)
    assert not found
    assert cached_workload(tmp_path, "k", make)[1] is True
    assert len(calls) == 2


def test_another_key_is_another_workload(tmp_path: Path) -> None:
    cached_workload(tmp_path, "a", lambda: world.workload(5))
    assert cached_workload(tmp_path, "b", lambda: world.workload(6))[0].requests == 6


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    workload, found = cached_workload(tmp_path / "file", "a", lambda: world.workload(5))
    assert (workload.requests, found) == (5, False)
