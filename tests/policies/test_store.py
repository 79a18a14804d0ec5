from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from features.errors import PolicyError
from features.files import write_whole
from policies import store as store_module
from policies.policy_file import build, to_bytes
from policies.signing import generate_key, load_private, sign
from policies.store import PolicyStore
from tests.policies.files import small_origin, small_policy
from tests.policies.views import estimators

ONE = build(small_policy(), estimators(), small_origin())
TWO = build(small_policy(), estimators(), small_origin(day=date(2026, 11, 4)))
T1, T2, T3 = "2026-11-04T03:00:00Z", "2026-11-05T03:00:00Z", "2026-11-06T03:00:00Z"


@pytest.fixture
def store(tmp_path):
    return PolicyStore(tmp_path / "policies", "demo")


@pytest.fixture
def moved(store):
    for file, at in ((ONE, T1), (TWO, T2)):
        store.add(file)
        store.promote(file, at=at, reason="better")
    return store


def test_an_empty_store_creates_nothing(store):
    assert store.current() is None
    assert store.history() == store.versions() == []
    assert store.test_openings("2026-11-03") == 0
    assert not store.folder.exists()


def test_add_keeps_versions_apart_and_once(store):
    first = store.add(ONE)
    stamp = first.stat().st_mtime_ns
    assert store.add(ONE) == first
    assert first.stat().st_mtime_ns == stamp
    assert store.add(TWO) != first
    assert store.find(ONE.content_hash) == ONE
    assert store.find(ONE.content_hash[7:19]) == ONE


def test_a_signed_copy_replaces_an_unsigned_one_and_not_the_other_way(store):
    signed = sign(ONE, load_private(generate_key()[0]), issued_at=T1, mlflow_run=None, test_openings=0)
    path = store.add(ONE)
    store.add(signed)
    store.add(ONE)
    assert path.read_bytes() == to_bytes(signed)


def test_promote_and_history(moved):
    assert moved.current() == TWO
    assert [(m.number, m.at, m.action) for m in moved.history()] == [(1, T1, "promote"), (2, T2, "promote")]


def test_in_force(moved):
    assert moved.in_force("2026-11-01T00:00:00Z") is None
    assert moved.in_force("2026-11-04T12:00:00Z").content_hash == ONE.content_hash
    assert moved.in_force(T3).content_hash == TWO.content_hash


def test_rollback_goes_one_back_or_where_it_is_told(moved):
    moved.rollback(at=T3, reason="TTFT up")
    assert moved.current() == ONE
    moved.rollback(at=T3, reason="again", to=TWO.content_hash)
    assert moved.current() == TWO


def test_rollback_needs_an_earlier_version(store):
    with pytest.raises(PolicyError, match="earlier version"):
        store.rollback(at=T1, reason="no")


def test_a_frozen_store_stands_still(moved):
    moved.freeze(at=T3, reason="incident 12")
    with pytest.raises(PolicyError, match="incident 12"):
        moved.promote(ONE, at=T3, reason="better")
    moved.rollback(at=T3, reason="a person says so")
    assert moved.current() == ONE
    moved.thaw()
    moved.promote(TWO, at=T3, reason="better")
    assert moved.current() == TWO


def test_only_kept_versions_of_the_pool_become_current(store):
    with pytest.raises(PolicyError, match="8 or more digits"):
        store.promote(ONE, at=T1, reason="better")
    with pytest.raises(PolicyError, match="store's pool"):
        store.add(build(small_policy(), estimators(), small_origin(pool="other")))
    with pytest.raises(PolicyError, match="folder"):
        PolicyStore(store.folder, "../demo")


def test_moves_go_forward_in_time(moved):
    with pytest.raises(PolicyError, match="before the last"):
        moved.promote(ONE, at=T1, reason="better")


def test_the_first_outcome_of_a_test_day_stands(store):
    first = {"verdict": "better", "difference": 0.031}
    assert store.test_day(ONE.decision_hash, "2026-11-03") is None
    assert store.record_test_day(ONE.decision_hash, "2026-11-03", first) == first
    assert store.record_test_day(ONE.decision_hash, "2026-11-03", {"verdict": "worse"}) == first
    assert store.test_day(ONE.decision_hash, "2026-11-03") == first
    assert store.test_openings("2026-11-03") == 1
    store.record_test_day(TWO.decision_hash, "2026-11-03", {"verdict": "worse"})
    assert store.test_openings("2026-11-03") == 2


def test_a_move_that_was_cut_off_is_finished_by_the_next_writer(moved, monkeypatch):
    def dies_at_current(path: Path, data: bytes) -> None:
        if path.name == "current.json":
            raise OSError("power is gone")
        write_whole(path, data)

    monkeypatch.setattr(store_module, "write_whole", dies_at_current)
    with pytest.raises(OSError, match="power"):
        moved.rollback(at=T3, reason="TTFT up")
    monkeypatch.undo()
    assert moved.current() == TWO  # whole, one move behind
    moved.add(TWO)
    assert moved.current() == ONE


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path):
    path = tmp_path / "file"
    write_whole(path, b"old")
    with pytest.raises(TypeError):
        write_whole(path, "not bytes")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_writers_of_two_processes_take_turns(store, tmp_path):
    store.add(ONE)
    script = (
        "import sys; from pathlib import Path; from policies.store import PolicyStore\n"
        "store = PolicyStore(Path(sys.argv[1]), 'demo'); file = store.find(sys.argv[2])\n"
        f"for _ in range(10): store.promote(file, at={T1!r}, reason=sys.argv[3])\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "policies"), ONE.content_hash]
    root = Path(__file__).parents[2]
    running = [subprocess.Popen([*command, name], cwd=root) for name in ("a", "b")]
    assert [process.wait(timeout=60) for process in running] == [0, 0]
    assert [move.number for move in store.history()] == list(range(1, 21))
