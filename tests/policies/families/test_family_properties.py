"""What holds for every family that chooses P and D apart, whatever its formula."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings

from features.errors import PolicyError
from policies.families.params import from_json, names, to_json, to_row
from policies.families.registry import APART, FAMILIES, decide, params_of
from policies.policy import Policy
from policies.search.families import family_spaces, first_points
from policies.search.space import NO_FREEDOM, apply
from tests.policies.families.rows import random_row
from tests.policies.views import Draws, estimators, random_policy, router_view, seeds

LAWS = estimators()
DRAWN = ("random", "power_of_two", "dynamo_cost", "llm_d_scorers", "sglang_cache_aware", "round_robin")
"""Families whose choice hangs on a node's place: draws are by index."""


def plain(policy, view):
    """Without what names nodes by their index: draws of candidates, a P that has the prompt."""
    return replace(policy, draws_p=0, draws_d=0), replace(view, request=replace(view.request, prefilled_on=None))


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(draws=seeds)
def test_closed_nodes_are_never_chosen(family, draws):
    policy, view = random_policy(draws, family), router_view(draws)
    decision = decide(policy, LAWS, view)
    if decision.prefill is None:
        return
    prefill, decode = view.prefill[decision.prefill], view.decode[decision.decode]
    assert all((decode.accepting, decode.compatible))
    if view.request.prefilled_on is not None:  # the prompt is there already
        assert decision.prefill == view.request.prefilled_on
        return
    assert all((prefill.accepting, prefill.compatible))
    assert -(-view.request.prompt_tokens // view.block_tokens) <= prefill.total_blocks


@pytest.mark.parametrize("family", [f.name for f in APART if f.name not in DRAWN])
@settings(max_examples=60, deadline=None)
@given(draws=seeds)
def test_order_of_nodes_does_not_matter(family, draws):
    """Keys follow their nodes; only ties are by place."""
    policy, view = plain(random_policy(draws, family), router_view(draws))
    mirrored = replace(view, prefill=view.prefill[::-1], decode=view.decode[::-1])
    one, other = decide(policy, LAWS, view), decide(policy, LAWS, mirrored)
    assert one.prefill_keys == other.prefill_keys[::-1]
    assert one.decode_keys == other.decode_keys[::-1]


@pytest.mark.parametrize("family", [f.name for f in APART])
@settings(max_examples=60, deadline=None)
@given(draws=seeds)
def test_nodes_that_are_no_candidates_change_no_key(family, draws):
    """A closed node behind the others is as if it were not there (round robin counts places)."""
    if family == "round_robin":
        return
    policy, view = plain(replace(random_policy(draws, family), params=()), router_view(draws))
    closed = replace(view.prefill[0], accepting=False, own_tokens=1e9, own_requests=1e6, waiting_requests=1e6)
    more = replace(view, prefill=(*view.prefill, closed))
    assert decide(policy, LAWS, more).prefill_keys[:-1] == decide(policy, LAWS, view).prefill_keys


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(draws=seeds)
def test_parameters_survive_row_and_json(family, draws):
    params = params_of(family, random_row(draws.random, family))
    assert from_json(type(params), to_json(params)) == params
    assert params_of(family, to_row(params)) == params


@pytest.mark.parametrize("family", [f for f in APART if names(f.params)], ids=lambda f: f.name)
def test_strange_parameters_are_refused(family):
    good = to_json(family.params())
    with pytest.raises(PolicyError, match="one of the family's"):
        from_json(family.params, good | {"no_such": 1.0})
    with pytest.raises(PolicyError, match="all be given"):
        from_json(family.params, {})
    for name, value in good.items():
        for wrong in (math.nan, math.inf, None, "x"):
            with pytest.raises(PolicyError):
                from_json(family.params, good | {name: wrong})
        if not isinstance(value, str):
            with pytest.raises(PolicyError):
                from_json(family.params, good | {name: -1.0})
    with pytest.raises(PolicyError, match="numbers"):
        params_of(family.name, (1.0,))


@pytest.mark.parametrize("family", APART, ids=lambda f: f.name)
def test_every_knob_can_be_searched(family):
    base = random_policy(Draws(1), "routecal")
    spaces = family_spaces((family.name,), base, 2, (0.5, 0.9), NO_FREEDOM)
    assert family.name in spaces
    for space in spaces.values():
        firsts = first_points(space)
        ends = [{**space.default_point(), k.name: end} for k in space.knobs for end in (k.low, k.high)]
        for policy in (apply(space, point) for point in (*firsts, *ends)):
            assert isinstance(policy, Policy)
            params_of(policy.family, policy.params)
        assert apply(space, space.default_point()).params == ()
        assert len({apply(space, p).params for p in firsts}) == sum(len(knob.tried) for knob in family.knobs)
    for knob in family.knobs:
        assert knob.name in names(family.params)
        assert all(knob.low <= value <= knob.high for value in knob.tried)
        assert knob.low < knob.high
