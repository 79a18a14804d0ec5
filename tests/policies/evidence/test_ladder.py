"""Rungs are masks: each adds terms, the last is the policy itself, and D is never chosen blindly."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from policies.evidence.ladder import rungs
from policies.kernel_types import TERMS
from policies.policy import ClassPolicy, default_policy

JOINT = replace(
    default_policy((ClassPolicy("chat"), ClassPolicy("batch"))), temperature_d_s=0.01, hysteresis_s=0.1, draws_d=2
)


def test_every_rung_adds_terms_and_the_last_is_the_policy():
    found = rungs(JOINT)
    assert list(found.values())[-1] == (TERMS, JOINT)
    for (below, _), (terms, _) in pairwise(found.values()):
        assert set(below) <= set(terms)


def test_a_rung_has_the_joint_score_s_weights_of_its_terms_and_no_others():
    for terms, policy in list(rungs(JOINT).values())[2:-1]:
        for mine, whole in zip(policy.classes, JOINT.classes, strict=True):
            for term, weight, full in zip(TERMS, mine.weights, whole.weights, strict=True):
                assert weight == (full if term in terms else 0.0) or (term, weight) == ("ProjectedKVPressure", 1.0)
        assert (policy.temperature_d_s, policy.hysteresis_s, policy.draws_d) == (0.0, 0.0, 0)


def test_below_the_last_rung_p_and_d_are_chosen_apart():
    moments = {name: policy.decode_moment for name, (_, policy) in rungs(JOINT).items()}
    assert moments["bookings"] == moments["locality and transfer"] == "decode_first"
    assert moments["joint pair"] == "arrival"
    late = rungs(replace(JOINT, decode_moment="handoff"))
    assert late["bookings"][1].decode_moment == "handoff"


def test_where_nothing_else_tells_ds_apart_pressure_does():
    weights = rungs(JOINT)["request size"][1].classes[0].weights
    assert weights[TERMS.index("ProjectedKVPressure")] == 1.0
    assert rungs(JOINT)["service load"][1].classes[0].weights[TERMS.index("ProjectedKVPressure")] == 0.0


def test_a_family_without_terms_has_no_ladder():
    assert rungs(replace(JOINT, family="lmetric")) == {}
