"""Alarms at the promised rate: hardly ever on quiet nights, nearly always within the first night of a drift."""

from __future__ import annotations

import pytest

from models.honesty.alarms import Seen, alarms
from models.honesty.day import compare, name_counts, readings
from models.honesty.reading import Reading
from tests.models.honesty.days import Drift, day
from tests.models.honesty.laws import pool

DRIFTED_NIGHTS = 8
SEEN = Seen({
    "app": frozenset({"chat/a", "chat/b"}), "tenant": frozenset({"a", "b"}), "prefill_node": frozenset({"p0", "p1"}),
    "decode_node": frozenset({"d0", "d1"}),
})  # fmt: skip


def night(seed: int, drift: Drift | None = None, *, rows: int = 250) -> list[Reading]:
    laws = pool()
    tables = day(laws, seed, drift, rows=rows)
    return alarms(readings(compare(laws, tables), name_counts(tables), SEEN))


def test_a_quiet_month_has_one_false_alarm_at_most() -> None:
    assert sum(bool(night(seed)) for seed in range(30)) <= 1


@pytest.mark.slow
def test_quiet_nights_hardly_ever_alarm() -> None:
    """At most 1 % of 200 nights: one false alarm in 100 days, where one in 30 is allowed."""
    assert sum(bool(night(seed)) for seed in range(200)) <= 2


def test_errors_within_the_bars_are_no_alarm() -> None:
    inside = Drift(node={"d0": 1.03, "d1": 0.97, "p0": 1.03, "p1": 0.97}, port={"out:p0": 1.03}, cache_blocks=57.0)
    assert not [told for seed in range(10) for told in night(seed, inside)]


@pytest.mark.parametrize(
    ("drift", "estimator", "group"),
    [
        (Drift(node={"d1": 1.2}), "decode", "d1"),
        (Drift(node={"p0": 1.2}), "prefill", "p0"),
        (Drift(port={"out:p1": 1.4}), "transfer", "out:p1"),
        (Drift(cache_blocks=30.0), "cache", "*"),
        (Drift(apps=("a", "b", "c"), app={"c": 3.0}), "length", "app:chat/c"),
        (Drift(app={"b": 2.0}), "length", "chat/b"),
    ],
)
def test_drift_alarms_in_its_first_night(drift: Drift, estimator: str, group: str) -> None:
    found = [{(r.estimator, r.group) for r in night(1000 + seed, drift, rows=400)} for seed in range(DRIFTED_NIGHTS)]
    assert sum((estimator, group) in names for names in found) > 0.9 * DRIFTED_NIGHTS
    # It is the drifted estimator that is told of, and no other.
    assert {name for names in found for name, _ in names} == {estimator}
