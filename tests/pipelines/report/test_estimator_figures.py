"""Estimators against what happened: keys of MLflow, figures and the page's section, from readings alone."""

from __future__ import annotations

import re

from models.honesty.day import compare, name_counts, readings
from models.honesty.reading import Reading
from pipelines.night.honesty import Predictions
from pipelines.report.estimator_figures import estimator_figures
from pipelines.report.figures import png
from pipelines.report.predicted import predicted_html
from pipelines.report.tracked import alarm_metrics, reading_metrics
from tests.models.honesty.days import Drift, day
from tests.models.honesty.laws import pool
from tests.models.honesty.test_false_alarms import SEEN


def night(seed: int, drift: Drift | None = None) -> Predictions:
    tables = day(pool(), seed, drift)
    return Predictions("policy p/2026-03-01", readings(compare(pool(), tables), name_counts(tables), SEEN))


QUIET, SLOW = night(1), night(2, Drift(node={"d1": 1.3}, apps=("a", "b", "c")))


def test_nights_have_the_same_keys() -> None:
    first, second = reading_metrics(QUIET.readings), reading_metrics(night(3).readings)
    assert first.keys() == second.keys()
    for key in (
        "length/coverage_q90/all", "length/coverage_q90/chat/a", "length/coverage_q90/13h", "decode/median_ape/d1",
        "decode/median_error/8-16", "transfer/median_error/out_p0", "cache/hit_error/all", "prefill/tail_q90/all",
    ):  # fmt: skip
        assert key in first, key
    assert all(re.fullmatch(r"[\w\-. /]+", key) for key in first)
    # Comparing two nights shows what drifted.
    slow = reading_metrics(SLOW.readings)
    assert first["decode/median_error/d1"] - slow["decode/median_error/d1"] > 0.15
    assert abs(first["decode/median_error/d0"] - slow["decode/median_error/d0"]) < 0.05


def test_alarms_are_counted_by_estimator() -> None:
    assert set(alarm_metrics(QUIET.readings).values()) == {0.0}
    found = alarm_metrics(SLOW.readings)
    assert found["decode/alarms/all"] >= 1.0
    assert found["length/alarms/all"] == 2.0  # a new app, of a new tenant
    assert found["cache/alarms/all"] == 0.0


def test_figures_are_the_same_bytes_again() -> None:
    first, second = (estimator_figures(SLOW.readings) for _ in range(2))
    assert list(first) == ["reliability", "coverage_over_time", "errors_against_load"]
    for name, figure in first.items():
        assert png(figure) == png(second[name])
    assert estimator_figures([]) == {}


def test_the_page_says_what_was_in_force_and_what_alarmed() -> None:
    kept = {"origin": {"decode": {"accepted": False, "reason": "decode: the new one is worse <than> the last."}}}
    text = "".join(predicted_html(SLOW, kept))
    assert text.startswith("<h2>Estimators against what happened</h2>")
    for words in ("policy p/2026-03-01", "drift", "new_group", "chat/c", "d1", "worse &lt;than&gt; the last"):
        assert words in text
    assert text.count("<img") == 3
    assert "no alarm" in "".join(predicted_html(QUIET, None))
    assert "No estimators were in force" in "".join(predicted_html(Predictions("", ()), None))
    assert not list(predicted_html(None, None))


def test_a_reading_without_an_interval_is_shown() -> None:
    one = Reading("decode", "d0", "median_error", 0.1, 9, expected=0.0, bar=0.05)
    assert "<td>± 5 %</td>" in "".join(predicted_html(Predictions("night of x", (one,)), None))
