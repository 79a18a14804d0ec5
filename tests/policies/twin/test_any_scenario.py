"""Engine and reference over thousands of scenarios, in which every rule meets every other."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.twin.reference.pool import replay_reference
from policies.twin.replay import replay
from tests.policies.twin.features import features_of, rules
from tests.policies.twin.scenarios import SCENARIOS, build
from tests.policies.twin.test_engine_equals_reference import assert_same, run

MANY = 2_000
EACH_AT_LEAST = 20
"""Of MANY scenarios."""


@pytest.mark.slow
@settings(max_examples=MANY, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(number=st.integers(min_value=SCENARIOS, max_value=10**9))
def test_they_agree_on_any_scenario(number):
    scenario = build(number)
    assert_same(run(replay, scenario), run(replay_reference, scenario))


@pytest.fixture(scope="module")
def seen() -> list[frozenset[str]]:
    return [features_of(build(number)) for number in range(MANY)]


@pytest.mark.slow
def test_every_rule_is_on_in_many_scenarios(seen):
    count = Counter(name for names in seen for name in names)
    assert {name: count[name] for name in rules() if count[name] < EACH_AT_LEAST} == {}


@pytest.mark.slow
def test_every_two_rules_meet(seen):
    met = {pair for names in seen for pair in combinations(sorted(names), 2)}
    often = sorted(name for name, n in Counter(name for names in seen for name in names).items() if n >= EACH_AT_LEAST)
    assert [pair for pair in combinations(often, 2) if pair not in met and can_meet(*pair)] == []


def can_meet(a: str, b: str) -> bool:
    """Two values of one setting cannot, nor parameters and a family that has none."""
    kinds = (a.partition("=")[0], b.partition("=")[0])
    return kinds[0] != kinds[1] and kinds != ("policy.family", "policy.params")
