"""Gate 1b on replays made by hand: every scored request counts, wherever it was placed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.evidence.fidelity import FidelityLimits, LoggedReplay, forced_placement_gate
from policies.evidence.gates import POLICY_REPLAY
from policies.evidence.policy_replay import policy_replay_gate
from tests.policies.evidence.test_fidelity import CLASSES, day

FAMILY = ["lmetric"]


def free(**wrong: float) -> LoggedReplay:
    """A day whose requests the policy placed."""
    whole = day(**wrong)  # type: ignore[arg-type]
    nowhere = np.full(whole.workload.requests, -1, np.int32)
    return replace(whole, workload=replace(whole.workload, forced_prefill=nowhere, forced_decode=nowhere))


def test_a_policy_that_agrees_passes_where_nothing_was_forced() -> None:
    found = policy_replay_gate([free(ttft=1.05)], FAMILY, CLASSES)
    assert (found.name, found.status) == (POLICY_REPLAY, "pass")
    assert found.detail.startswith("lmetric: worst of 2 classes: ttft_p")
    assert found.numbers["chat.requests"] + found.numbers["batch.requests"] == 3000
    assert forced_placement_gate([free(ttft=1.05)], CLASSES).status == "not_run"


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"ttft": 1.15}, "ttft_p50"),
        ({"tail": 1.4}, "ttft_p99"),
        ({"tpot": 1.07}, "tpot_p50"),
        ({"cached": 200.0}, "hit_share"),
    ],
)
def test_each_disagreement_fails(wrong: dict[str, float], names: str) -> None:
    found = policy_replay_gate([free(**wrong)], FAMILY, CLASSES)
    assert found.status == "fail"
    assert names in found.detail


def test_policies_that_took_turns_are_all_named() -> None:
    found = policy_replay_gate([free(), free(), free()], ["lmetric", "routecal", "lmetric"], CLASSES)
    assert found.detail == "lmetric and routecal: 2 classes agree exactly"


def test_limits_are_settings_and_small_classes_are_not_judged() -> None:
    assert policy_replay_gate([free(ttft=1.15)], FAMILY, CLASSES, FidelityLimits(ttft_p50=0.2)).status == "pass"
    small = policy_replay_gate([free(requests=300)], FAMILY, CLASSES)
    assert (small.status, small.detail) == ("not_run", "lmetric: no class has 500 requests with logged times")
