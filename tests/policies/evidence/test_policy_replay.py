"""Gate 1b on replays made by hand: every scored request counts, wherever it was placed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.evidence.fidelity import FidelityLimits, LoggedReplay, forced_placement_gate
from policies.evidence.gates import POLICY_REPLAY
from policies.evidence.policy_replay import policy_replay_gate, replay_seeds
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


def drawn(*factors: float) -> LoggedReplay:
    """A log with replays that are these factors as slow, each a draw of one pool."""
    whole = free()
    (one,) = whole.replays
    return replace(whole, replays=tuple(replace(one, ttft_s=one.ttft_s * factor) for factor in factors))


def test_replays_are_taken_together_where_a_single_one_fails() -> None:
    alone = policy_replay_gate([drawn(1.18)], FAMILY, CLASSES)
    assert alone.status == "fail"
    together = policy_replay_gate([drawn(1.18, 0.92, 0.98, 1.06, 0.9)], FAMILY, CLASSES)
    assert together.status == "pass", together.detail
    assert together.numbers["replays"] == 5
    assert together.value is not None
    assert together.value < 0.5
    # All of them wrong is no chance.
    assert policy_replay_gate([drawn(1.16, 1.17, 1.18, 1.17, 1.16)], FAMILY, CLASSES).status == "fail"
    # Replays that do not agree with each other leave it open.
    torn = policy_replay_gate([drawn(1.5, 0.9, 1.3, 1.0, 1.2)], FAMILY, CLASSES)
    assert torn.undecided, torn.detail
    assert torn.detail.startswith("lmetric: undecided: ")


def test_copies_of_a_request_are_one_request() -> None:
    whole = free(requests=450)
    copies = replace(whole, replays=whole.replays * 5)
    assert policy_replay_gate([copies], FAMILY, CLASSES).status == "not_run"
    enough = free(requests=3000)
    found = policy_replay_gate([replace(enough, replays=enough.replays * 5)], FAMILY, CLASSES)
    assert found.numbers["chat.requests"] + found.numbers["batch.requests"] == 3000
    assert (found.value, found.interval) == (0.0, (0.0, 0.0))


def test_a_request_that_some_replays_do_not_complete_counts_in_the_others() -> None:
    whole = free()
    (one,) = whole.replays
    lost = np.where(np.arange(len(one.ttft_s)) % 2 == 0, np.nan, one.ttft_s)
    halved = replace(whole, replays=(one, replace(one, ttft_s=lost)))
    found = policy_replay_gate([halved], FAMILY, CLASSES)
    assert found.numbers["chat.requests"] + found.numbers["batch.requests"] == 3000
    assert found.value == 0.0  # the log is held against the same requests


def test_seeds_of_replays_begin_with_the_nights_own_and_do_not_meet() -> None:
    assert replay_seeds(7, 1) == (7,)
    assert replay_seeds(7, 5)[:3] == replay_seeds(7, 3)
    assert len({seed for base in range(50) for seed in replay_seeds(base, 5)}) == 250
