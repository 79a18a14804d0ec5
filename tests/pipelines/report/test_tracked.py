"""Metric keys of a night: the same for every arm, known values where they belong."""

from __future__ import annotations

from pipelines.report.tracked import arm_metrics, error_metrics, night_metrics, night_params
from tests.pipelines.report.values import evidence, fitted


def test_all_arms_have_the_same_keys() -> None:
    found = [arm_metrics(arm) for arm in evidence()["details"]["arms"]]
    assert len({frozenset(metrics) for metrics in found}) == 1
    assert found[0]["goodput_frac"] == 0.905
    assert found[0]["goodput_frac.long"] == 0.85
    assert found[0]["ttft_ms.p99"] == 1310.4
    assert found[1]["gain_to_incumbent.low"] == 0.004
    assert found[2]["load_carried"] is None


def test_a_night_tells_of_its_winner() -> None:
    assert night_metrics(evidence())["goodput_frac"] == 0.917
    assert night_metrics(evidence())["optimism.train_gain"] == 0.03
    assert night_params(evidence())["gate.policy_replay"] == "waived"
    assert night_metrics({"details": {}}) == {}


def test_errors_of_estimators() -> None:
    found = error_metrics(fitted())
    assert found["length.coverage.all.q0.9"] == 0.91
    assert found["prefill.median_ape_frac"] == 0.03
