"""The compiled decision and the plain one agree bit for bit, whatever the view holds."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.families.registry import FAMILIES, decide
from tests.policies.views import estimators, policies, router_views, run_kernel, same_bits

LAWS = estimators()


def assert_agree(policy, view):
    plain = decide(policy, LAWS, view)
    chosen, scratch = run_kernel(policy, LAWS, view)
    width = len(view.decode)
    expected = -1 if plain.prefill is None else plain.prefill * width + plain.decode
    assert chosen == expected
    found = {(c.prefill, c.decode): c for c in plain.candidates}
    for i in range(len(view.prefill)):
        for j in range(width):
            candidate = found.get((i, j))
            if candidate is None:
                assert not math.isfinite(scratch.scores[i, j])
                assert math.isnan(scratch.predicted_ttft_s[i, j])
                assert math.isnan(scratch.predicted_tpot_s[i, j])
                continue
            assert same_bits(candidate.score, scratch.scores[i, j])
            assert same_bits(candidate.ttft_s, scratch.predicted_ttft_s[i, j])
            assert same_bits(candidate.tpot_s, scratch.predicted_tpot_s[i, j])
            for term, value in enumerate(candidate.terms):
                assert same_bits(value, scratch.terms[i, j, term]), term
    if policy.family != "routecal":
        closed = {(i, j) for i, j, _ in plain.excluded}
        for i in range(len(view.prefill)):
            for j in range(width):
                excluded = (i, -1) in closed or (-1, j) in closed
                assert math.isinf(scratch.scores[i, j]) == excluded


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernel_and_plain_decision_agree(family, data):
    assert_agree(data.draw(policies([family])), data.draw(router_views()))
