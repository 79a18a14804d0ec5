"""The compiled decision and the plain one agree bit for bit, whatever the view holds."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings

from policies.families.registry import FAMILIES, decide
from policies.scoring import DECODE_RULES, PREFILL_RULES, UNKNOWN_RULE
from tests.policies.views import Draws, estimators, random_policy, router_view, run_kernel, same_bits, seeds

LAWS = estimators()
ALONE = replace(LAWS, transfer=replace(LAWS.transfer, contention="none"))


def assert_agree(policy, view, laws=LAWS):
    plain = decide(policy, laws, view)
    chosen, scratch = run_kernel(policy, laws, view)
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
        for keys, found_keys in ((plain.prefill_keys, scratch.keys_p), (plain.decode_keys, scratch.keys_d)):
            for key, found_key in zip(keys, found_keys, strict=True):
                assert (math.isinf(found_key) and key is None) or same_bits(key, found_key)
        closed = {(i, j) for i, j, _ in plain.excluded}
        for i in range(len(view.prefill)):
            for j in range(width):
                excluded = (i, -1) in closed or (-1, j) in closed
                assert math.isinf(scratch.scores[i, j]) == excluded


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=300, deadline=None)
@given(draws=seeds)
def test_kernel_and_plain_decision_agree(family, draws):
    assert_agree(random_policy(draws, family), router_view(draws), draws.one(LAWS, ALONE))


def test_random_views_reach_every_branch():
    """The property above is worth what its views cover."""
    seen: Counter[str] = Counter()
    for seed in range(1500):
        draws = Draws(seed)
        policy, view = random_policy(draws, draws.one("routecal", draws.one(*FAMILIES))), router_view(draws)
        decision = decide(policy, LAWS, view)
        scores = sorted(c.score for c in decision.candidates)
        seen.update({rule for _, _, rule in decision.excluded})
        seen["refused"] += decision.prefill is None
        seen["capacity_dropped"] += decision.capacity_dropped
        seen["tie"] += len(scores) > 1 and scores[0] == scores[1]
        seen["unknown_term"] += any(None in c.terms for c in decision.candidates)
        seen["unknown_prediction"] += any(c.ttft_s is None for c in decision.candidates)
        seen["benefit"] += any(c.terms[6] for c in decision.candidates)
    needed = {*PREFILL_RULES, *DECODE_RULES, UNKNOWN_RULE, "refused", "capacity_dropped", "tie", "unknown_term"}
    assert all(seen[name] >= 20 for name in needed | {"unknown_prediction", "benefit"}), seen
