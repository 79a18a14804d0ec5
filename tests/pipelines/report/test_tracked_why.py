"""Gates, explanation and searches as metrics: which key holds what, and that MLflow takes every key."""

from __future__ import annotations

from typing import Any

from pipelines.report.keys import clean
from pipelines.report.tracked import night_metrics, night_params
from pipelines.report.tracked_why import explanation_metrics, gate_metrics, search_metrics
from tests.pipelines.report.values import evidence


def details() -> dict[str, Any]:
    found: dict[str, Any] = evidence()["details"]
    return found


def test_a_gate_is_told_with_what_it_was_judged_by() -> None:
    found = gate_metrics(details())
    assert {key: found[f"gate/validation/{key}"] for key in ("value", "threshold", "low", "high", "passed")} == {
        "value": 0.012, "threshold": 0.0, "low": 0.004, "high": 0.021, "passed": 1.0,
    }  # fmt: skip
    assert gate_metrics(evidence(forced="fail")["details"])["gate/forced_placement/passed"] == 0.0
    # Waived or not run: neither passed nor failed.
    for name in ("policy_replay", "drills"):
        assert found[f"gate/{name}/passed"] is None
        assert found[f"gate/{name}/value"] is None


def test_numbers_behind_a_gate_have_keys_of_their_own() -> None:
    value = details()
    value["gates"][0]["numbers"] = {"long.ttft_p99": 0.12, "value": 3.0, "é.requests": 600.0}
    found = gate_metrics(value)
    assert found["gate/forced_placement/numbers/long.ttft_p99"] == 0.12
    assert found["gate/forced_placement/numbers/_.requests"] == 600.0
    assert (found["gate/forced_placement/value"], found["gate/forced_placement/numbers/value"]) == (0.6, 3.0)


def test_the_ladder_and_what_the_winner_lives_on() -> None:
    found = explanation_metrics(details())
    assert found["ladder/joint pair/goodput"] == 0.917
    assert (found["ladder/bookings/gain"], found["ladder/bookings/gain.low"]) == (0.02, 0.004)
    assert found["ladder/guard/gain"] is None
    assert found["ablation/DecodeWait/off"] == -0.031
    assert found["sensitivity/DecodeWait/double"] == -0.04
    assert abs((found["ablation/draws_p/default.low"] or 0.0) + 0.002) < 1e-12


def test_arms_are_told_by_role() -> None:
    found = explanation_metrics(details())
    assert found["flow/incumbent/crossed_frac"] == 0.5
    assert found["flow/winner/crossed_frac"] == found["flow/default/crossed_frac"] == 0.125  # one arm in two roles
    assert found["flow/winner/crossed_frac/under 512"] == 0.125
    assert found["flow/winner/crossed_frac/512-2047"] is None
    assert found["flow/winner/decode_autocorrelation"] is None
    assert found["flow/winner/prefill_share_most"] == 0.75
    assert found["regret/winner/short/ttft_s"] == 0.0125
    assert found["regret/default/long/missed_frac"] is None
    assert found["loads/winner/0.9"] == 0.95
    assert (found["slices/looked_at"], found["slices/largest_loss"], found["slices/largest_gain"]) == (31, -0.125, 0.2)
    assert (found["switchback/blocks"], found["switchback/hours"]) == (546, 18.2)


def test_searches() -> None:
    found = search_metrics(details())
    assert (found["search/searched/trials"], found["search/searched/given_up"]) == (8, 2)
    assert found["search/lmetric/decode_first/best_soft_frac"] == 0.85
    params = night_params(evidence())
    assert params["search.searched.stopped"] == "budget used up"
    assert params["search.searched.point"] == '{"SloRisk": 1.5}'
    assert "search.searches" not in params


def test_mlflow_takes_every_key() -> None:
    from mlflow.utils.validation import _validate_metric_name

    value = evidence()
    value["details"]["explanation"]["regret"][0]["slo_class"] = "../a//é<b>:\n"
    value["details"]["explanation"]["flows"][0]["crossings"][0]["prompt_tokens"] = "≥ 32,768"
    found = night_metrics(value)
    assert "flow/winner/crossed_frac/from 32768" in found
    for key in found:
        _validate_metric_name(key)
    assert clean("..") == clean("") == "_"
    assert clean("chat/a.b") == "chat/a.b"


def test_older_evidence_has_no_such_keys() -> None:
    value = details()
    del value["explanation"]
    value["search"] = {"trials": 8}
    for gate in value["gates"]:
        del gate["numbers"]
    assert explanation_metrics(value) == search_metrics(value) == {}
    assert gate_metrics(value)["gate/validation/value"] == 0.012
    value["explanation"] = details()["explanation"] | {"ladder": None, "slices": None, "switchback": None}
    del value["explanation"]["ladder"]
    found = explanation_metrics(value)
    assert not [key for key in found if key.startswith(("ladder", "slices", "switchback"))]
    assert "ablation/DecodeWait/off" in found
