"""The night's predictions and its gate: who speaks for a day, what is refused, what stops nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import polars as pl
import pytest

from features.errors import ModelError
from features.lake import Lake
from models.honesty.alarms import Seen
from models.honesty.gate import Gated, LastGood
from models.honesty.reading import ESTIMATORS, Reading
from models.portable.estimators import Estimators
from models.splits import Split, SplitMode, Window
from pipelines.night import honesty
from pipelines.night.inputs import Inputs
from pipelines.night.last_good import EstimatorStore, Kept
from pipelines.settings import Pool, load_settings
from policies.store import PolicyStore
from tests.models.honesty.days import Drift, day
from tests.models.honesty.laws import pool as laws
from tests.pipelines.nights import settings_file

DAY = date(2026, 3, 5)
BEFORE = DAY - timedelta(days=1)
LAWS = laws()


class Happened:
    """Stands in for what the lake holds of some windows."""

    def __init__(self, seed: int, drift: Drift | None = None) -> None:
        self._tables = day(LAWS, seed, drift)

    def under(self, _pool: Pool, _law: object) -> object:
        return self._tables


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return load_settings(settings_file(tmp_path)).pool("p")


@pytest.fixture
def kept(tmp_path: Path) -> EstimatorStore:
    return EstimatorStore(tmp_path / "runs", "p")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def store(tmp_path: Path) -> PolicyStore:
    return PolicyStore(tmp_path / "store", "p")


def inputs(*, held_out: bool = True) -> Inputs:
    windows = [Window(DAY - timedelta(days=back), 0, 1) for back in (2, 1, 0)]
    split = Split(SplitMode.DAYS, (windows[0],), (windows[1],), (windows[2],))
    if not held_out:
        split = Split(SplitMode.TRAIN_ONLY, tuple(windows), (), ())
    return Inputs(DAY, {w.day: (0, 1) for w in windows}, 0, split, None, None, {})  # type: ignore[arg-type]


def seen(monkeypatch: pytest.MonkeyPatch, by_day: dict[date, Happened]) -> None:
    """The lake holds these days."""

    def observed(_lake: Lake, _pool: Pool, windows: list[Window], *, caches: bool) -> Happened:
        assert caches
        return by_day[windows[-1].day]

    names = {"app": frozenset({"chat/a", "chat/b"}), "decode_node": frozenset({"d0", "d1"})}
    monkeypatch.setattr(honesty, "observed", observed)
    monkeypatch.setattr(honesty, "seen_before", lambda *_: Seen(names))


def slow_decode(factor: float) -> Estimators:
    factors = {name: value * factor for name, value in LAWS.decode.node_factor.items()}
    return replace(LAWS, decode=replace(LAWS.decode, node_factor=factors))


def test_the_last_night_speaks_where_no_policy_is_current(
    monkeypatch: pytest.MonkeyPatch, lake: Lake, store: PolicyStore, kept: EstimatorStore, pool: Pool
) -> None:
    seen(monkeypatch, {DAY: Happened(1, Drift(node={"d1": 1.3}, apps=("a", "b", "c")))})
    none = honesty.predictions(lake, store, kept, pool, inputs())
    assert (none.source, none.readings) == ("", ())
    assert "first night" in none.reason
    kept.keep(BEFORE, LastGood(LAWS, dict.fromkeys(ESTIMATORS, "2026-03-04")))
    kept.keep(DAY, LastGood(slow_decode(9.0), dict.fromkeys(ESTIMATORS, "2026-03-05")))
    found = honesty.predictions(lake, store, kept, pool, inputs())
    assert found.source == "night of 2026-03-04"
    assert {(r.estimator, r.alarm) for r in found.alarms} == {("decode", "drift"), ("length", "new_group")}
    frame = honesty.frame_of(found)
    assert frame.height == len(found.readings) > 100
    assert honesty.predicted_of(frame) == found
    assert honesty.predicted_of(honesty.frame_of(none)).readings == ()


def test_tables_that_cannot_be_read_stop_nothing(
    monkeypatch: pytest.MonkeyPatch, lake: Lake, store: PolicyStore, kept: EstimatorStore, pool: Pool
) -> None:
    def broken(*_: object, **__: object) -> Happened:
        raise ModelError("`output_tokens >= 0` must hold", value=-1)

    monkeypatch.setattr(honesty, "observed", broken)
    kept.keep(BEFORE, LastGood(LAWS, dict.fromkeys(ESTIMATORS, "2026-03-04")))
    found = honesty.predictions(lake, store, kept, pool, inputs())
    assert found.readings == ()
    assert "`output_tokens >= 0` must hold" in found.reason
    last = kept.before(DAY, not_before=BEFORE)
    gate = honesty.gate_or_note(lake, pool, inputs(), LAWS, last)
    assert gate.estimators == LAWS
    assert {g.outcome for g in gate.gates} == {"accepted"}
    assert "`output_tokens >= 0` must hold" in gate.notes[0]


def gated(lake: Lake, pool: Pool, new: Estimators, old: Estimators, *, held_out: bool = True) -> Gated:
    last = Kept(BEFORE, LastGood(old, dict.fromkeys(ESTIMATORS, "2026-03-04")), "sha256:00")
    return honesty.gate_or_note(lake, pool, inputs(held_out=held_out), new, last)


def test_a_worse_one_is_refused_and_said(monkeypatch: pytest.MonkeyPatch, lake: Lake, pool: Pool) -> None:
    quiet = {DAY: Happened(2), BEFORE: Happened(1)}
    seen(monkeypatch, quiet)
    found = gated(lake, pool, slow_decode(1.4), LAWS)
    assert found.estimators == LAWS
    assert [g.estimator for g in found.gates if not g.accepted] == ["decode"]
    assert found.notes == (found.gates[2].reason,)
    assert found.digests == {"estimators/2026-03-04": "sha256:00"}
    # What is scored is what is used.
    assert not [r for r in found.readings if r.alarm]
    found = gated(lake, pool, slow_decode(1.4), LAWS, held_out=False)
    assert [g.estimator for g in found.gates if not g.accepted] == ["decode"]
    found = gated(lake, pool, slow_decode(1.01), LAWS)
    assert (found.estimators, found.notes, found.digests) == (slow_decode(1.01), (), {})


def test_after_a_drift_the_night_itself_decides(monkeypatch: pytest.MonkeyPatch, lake: Lake, pool: Pool) -> None:
    """New laws know that D got slower; on the days before, which hold nothing of it, they look worse."""
    drifted = Happened(2, Drift(node={"d0": 1.3, "d1": 1.3}))
    seen(monkeypatch, {DAY: drifted, BEFORE: Happened(1)})
    found = gated(lake, pool, slow_decode(1.3), LAWS)
    assert (found.estimators, found.notes) == (slow_decode(1.3), ())
    assert found.gates[2].loss is not None
    assert found.gates[2].last_good_loss is not None
    assert found.gates[2].loss < found.gates[2].last_good_loss


def test_readings_are_rows_of_a_table() -> None:
    one = Reading("decode", "d0", "median_error", 0.1, 9, None, None, 0.0, 0.05, None, None, "so")
    frame = honesty.frame_of(honesty.Predictions("night of x", (one,)))
    assert frame.schema["low"] == pl.Float64
    assert honesty.readings_of(frame) == (one,)
