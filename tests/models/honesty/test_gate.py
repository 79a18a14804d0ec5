"""A worse estimator does not replace the last good one; a better one, or one as good, does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.honesty.day import compare
from models.honesty.gate import LastGood, first_gates, gates, mixed
from models.honesty.reading import ESTIMATORS
from models.portable.cache import CacheLaw
from models.portable.estimators import Estimators
from models.portable.steps import StepLaws
from tests.models.honesty.days import day
from tests.models.honesty.laws import pool

GOOD = pool()
DAYS = dict.fromkeys(ESTIMATORS, "2026-03-01")


def outcomes(new: Estimators, old: Estimators, *, rows: int = 400) -> tuple[dict[str, str], Estimators]:
    tables = day(GOOD, 5, rows=rows)
    last = LastGood(old, DAYS)
    found = gates("2026-03-02", compare(new, tables), compare(old, tables), last)
    assert [gate.estimator for gate in found] == list(ESTIMATORS)
    return {gate.estimator: gate.outcome for gate in found}, mixed(new, last, found)


def slow(laws: StepLaws, factor: float) -> StepLaws:
    return replace(laws, node_factor={name: value * factor for name, value in laws.node_factor.items()})


def test_as_good_ones_are_accepted() -> None:
    close = replace(GOOD, decode=slow(GOOD.decode, 1.01))
    found, used = outcomes(close, GOOD)
    assert set(found.values()) == {"accepted"}
    assert used == close


@pytest.mark.parametrize("rows", [400, 60])
def test_only_the_worse_ones_are_kept_out(rows: int) -> None:
    bad = replace(
        GOOD,
        decode=slow(GOOD.decode, 1.5),
        length=replace(GOOD.length, rows=((800.0, 3000.0, 9000.0),)),
        cache=dict.fromkeys(GOOD.cache, CacheLaw(5.0)),
    )
    found, used = outcomes(bad, GOOD, rows=rows)
    assert {name for name, outcome in found.items() if outcome == "kept_last_good"} == {"decode", "length", "cache"}
    assert used == GOOD
    better, used = outcomes(GOOD, bad, rows=rows)
    assert set(better.values()) == {"accepted"}
    assert used == GOOD


def test_reasons_have_the_figures() -> None:
    tables, bad = day(GOOD, 5), replace(GOOD, prefill=slow(GOOD.prefill, 2.0))
    gate = gates("2026-03-02", compare(bad, tables), compare(GOOD, tables), LastGood(GOOD, DAYS))[1]
    assert (gate.outcome, gate.day, gate.accepted) == ("kept_last_good", "2026-03-01", False)
    assert "worse than the last good one (loss 0." in gate.reason
    assert gate.loss is not None
    assert gate.last_good_loss is not None
    assert gate.loss > 3 * gate.last_good_loss


def test_the_first_night_accepts_all() -> None:
    found = first_gates("2026-03-02")
    assert {gate.outcome for gate in found} == {"first"}
    assert mixed(GOOD, None, found) == GOOD


def test_a_table_without_rows_decides_nothing() -> None:
    tables = day(GOOD, 5)
    empty = replace(tables, decode_steps=tables.decode_steps.head(0), prompts=tables.prompts.head(0))
    bad = replace(GOOD, decode=slow(GOOD.decode, 2.0))
    found = gates("2026-03-02", compare(bad, empty), compare(GOOD, empty), LastGood(GOOD, DAYS))
    assert {gate.estimator: gate.outcome for gate in found}["decode"] == "accepted"
