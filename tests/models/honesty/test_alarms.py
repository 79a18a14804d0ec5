"""Alarms: Holm over the readings of a night, names that nobody knew, and sentences."""

from __future__ import annotations

from dataclasses import replace

from models.honesty.alarms import NEW_ROWS, Seen, alarms, judged, new_groups
from models.honesty.reading import Reading

PLAIN = Reading("decode", "d0", "median_error", -0.12, 900, -0.14, -0.1, 0.0, 0.05)


def with_p(*values: float | None) -> list[Reading]:
    return [replace(PLAIN, group=f"d{k}", p=p) for k, p in enumerate(values)]


def test_holm_over_what_is_tested() -> None:
    found = judged(with_p(0.004, None, 0.0001, 0.006, 1.0), alpha=0.01)
    assert [reading.alarm for reading in found] == [None, None, "drift", None, None]  # 0.004 · 3 > 0.01
    # 0.0001 · 4, 0.003 · 3, 0.004 · 2, and the last is far.
    found = judged(with_p(0.003, 0.0001, 0.004, 1.0), alpha=0.01)
    assert [reading.alarm for reading in found] == ["drift", "drift", "drift", None]
    assert not alarms(judged(with_p(None, None)))


def test_sentences_have_the_numbers() -> None:
    (found,) = judged([replace(PLAIN, p=1e-9)])
    assert found.sentence == (
        "decode, d0: median error -12.0 % [-14.0 %, -10.0 %], to be within 5 %, 900 rows"
    )  # fmt: skip
    cover = Reading("length", "*", "coverage_q90", 0.81, 1500, 0.79, 0.83, 0.9, 0.03, 1.0)
    assert judged([cover])[0].sentence == (
        "length, all: coverage q90 0.810 [0.790, 0.830], to be within 0.03 of 0.9, 1,500 rows"
    )


def test_names_that_nobody_knew() -> None:
    counts = {"app": {"chat/a": 900, "chat/b": NEW_ROWS, "chat/c": NEW_ROWS - 1}, "tenant": {"t": 900}}
    found = new_groups(counts, Seen({"app": frozenset({"chat/a"})}))
    assert [(r.estimator, r.group, r.alarm, r.rows) for r in found] == [("length", "app:chat/b", "new_group", NEW_ROWS)]
    assert found[0].sentence == "app chat/b: 100 rows, and the estimators never saw it"
