"""Rules of the decision that have a number: the score against the walk, targets, unknowns, jitter, risk."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
from hypothesis import assume, given, settings

from features.errors import PolicyError
from policies.families.registry import decide
from policies.mixing import decode_draw, mix, prefill_draw
from policies.policy import ClassPolicy, Policy
from policies.risk import GRID_POINTS, met, risk_table
from policies.stages import predict_ttft
from tests.policies.test_worked_case import LAWS, the_policy, the_view
from tests.policies.views import estimators, random_policy, router_view, seeds

UNIT = (1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0)


@settings(max_examples=300, deadline=None)
@given(draws=seeds)
def test_unit_score_is_the_predicted_ttft(draws):
    policy, view, laws = random_policy(draws, "routecal"), router_view(draws), estimators()
    contention = draws.one("share", "none")
    laws = replace(laws, transfer=replace(laws.transfer, contention=contention))
    classes = tuple(replace(c, weights=UNIT) for c in policy.classes)
    policy = replace(policy, classes=classes, temperature_p_s=0.0, temperature_d_s=0.0, when_full="queue")
    decision = decide(policy, laws, view)
    assume(decision.candidates)
    for c in decision.candidates:
        walked = predict_ttft(policy, laws, view, c.prefill, c.decode)
        if walked is None:
            assert c.ttft_s is None
            continue
        assert c.ttft_s == pytest.approx(walked, abs=1e-9)
        assert c.score == pytest.approx(walked, abs=1e-9)


def test_what_the_compute_covers_of_a_transfer_is_not_waited_for():
    def terms(**transfer):
        laws = replace(LAWS, transfer=replace(LAWS.transfer, **transfer))
        return decide(the_policy(), laws, the_view()).candidates[0].terms

    _, compute, wire, *_ = terms()
    assert terms(overlap_frac=0.1)[2] == pytest.approx(wire - 0.1 * compute)
    assert terms(overlap_frac=1.0, last_frac=0.9)[2] == pytest.approx(max(wire - compute, 0.9 * wire))


@settings(max_examples=200, deadline=None)
@given(draws=seeds)
def test_the_choice_is_the_lowest_score(draws):
    policy = replace(random_policy(draws, "routecal"), hysteresis_s=0.0, decode_moment="arrival")
    decision = decide(policy, estimators(), router_view(draws))
    best = min((c.score for c in decision.candidates), default=None)
    chosen = [c.score for c in decision.candidates if (c.prefill, c.decode) == (decision.prefill, decision.decode)]
    assert chosen == ([] if best is None else [best])


def test_splitmix_reference_values():
    # First outputs of splitmix64 from seed 0, as its authors publish them.
    state = [(0x9E3779B97F4A7C15 * k) % 2**64 for k in range(3)]
    assert [mix(s) for s in state] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_draws_are_uniform():
    for draw in (prefill_draw, decode_draw):
        values = [draw(mix(k), k % 8) for k in range(4000)]
        assert 0.0 <= min(values) < max(values) < 1.0
        assert sum(values) / len(values) == pytest.approx(0.5, abs=0.02)


def test_risk_table_is_the_normal_distribution():
    table = risk_table(0.25)
    assert len(table) == GRID_POINTS
    for at in (32, 64, 80, 128):
        assert table[at] == pytest.approx(NormalDist().cdf(math.log(at / 64) / 0.25), abs=1e-12)
    assert table == tuple(round(value, 12) for value in table)
    assert risk_table(0.0)[63:65] == (0.0, 1.0)


def test_met():
    table = risk_table(0.25)
    assert met(None, math.nan, table) == 1.0
    assert met(0.0, 1.0, table) == 0.0
    assert met(1.0, 0.0, table) == table[-1] == met(9.0, 1.0, table)
    assert math.isnan(met(1.0, math.nan, table))
    assert met(1.5 / 64, 1.0, table) == (table[1] + table[2]) / 2


def test_a_late_request_has_full_risk():
    view = the_view()
    late = replace(view, request=replace(view.request, waited_s=25.0))
    assert all(c.terms[5] == 1.0 for c in decide(the_policy(), LAWS, late).candidates)


def test_worst_stands_for_an_unknown_term_and_exclude_removes_the_pair():
    view = the_view()
    view = replace(view, decode=(replace(view.decode[0], running_tokens=None), view.decode[1]))
    a, b = decide(the_policy(), LAWS, view).candidates
    assert a.terms[3] is None
    assert b.terms[3] is not None
    known = decide(the_policy(), LAWS, the_view()).candidates[1]
    assert b.score == known.score
    excluded = decide(the_policy(unknown="exclude"), LAWS, view)
    assert [c.decode for c in excluded.candidates] == [1]
    assert excluded.excluded == ((0, 0, "unknown"),)


def test_a_term_of_weight_zero_may_be_unknown():
    view = the_view()
    view = replace(view, decode=tuple(replace(d, growth_blocks_per_s=None) for d in view.decode))
    case = replace(the_policy().classes[0], weights=ClassPolicy("x").weights)
    policy = the_policy(unknown="exclude", classes=(case,))
    assert len(decide(policy, LAWS, view).candidates) == 2


def test_reject_and_queue():
    view = the_view()
    full = replace(view, decode=tuple(replace(d, active_blocks=19_000.0) for d in view.decode))
    assert decide(the_policy(when_full="reject"), LAWS, full).decode is None
    queued = decide(the_policy(when_full="queue"), LAWS, full)
    assert queued.capacity_dropped
    assert queued.decode is not None


@pytest.mark.parametrize(
    "broken",
    [
        {"high_water": 1.0},
        {"release_floor": 0.0},
        {"horizon_s": math.nan},
        {"classes": ()},
        {"classes": (ClassPolicy("a"), ClassPolicy("a"))},
        {"unknown": "ignore"},
        {"risk_ttft": (0.0, 1.0)},
    ],
)
def test_a_policy_refuses_what_breaks_its_rules(broken):
    with pytest.raises(PolicyError):
        Policy(**({"family": "routecal", "classes": (ClassPolicy("a"),)} | broken))


@pytest.mark.parametrize(
    "broken", [{"weights": (1, 1, 1, 1, 1, 1, -1)}, {"ttft_target_s": 0.0}, {"quantile": 1.0}, {"reserve_blocks": -1}]
)
def test_a_class_refuses_what_breaks_its_rules(broken):
    with pytest.raises(PolicyError):
        ClassPolicy("a", **broken)


def test_unknown_family_and_class_are_named():
    with pytest.raises(PolicyError, match="one of routecal"):
        decide(the_policy("fastest"), LAWS, the_view())
    view = the_view()
    with pytest.raises(PolicyError, match="class_index"):
        decide(the_policy(), LAWS, replace(view, request=replace(view.request, class_index=3)))
