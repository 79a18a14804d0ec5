"""Each rule of routers changes what happens in some scenarios: else their agreement would show nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.twin.replay import replay
from tests.policies.twin.scenario import Scenario
from tests.policies.twin.scenarios import SCENARIOS, build
from tests.policies.twin.test_engine_equals_reference import run as run_scenario

OFF = {
    "decode_moment": "arrival",
    "draws_p": 0,
    "draws_d": 0,
    "hysteresis_s": 0.0,
    "half_life_s": 0.0,
    "lease_s": None,
}
SEEN = {"loss_frac": 0.0, "correct_age": False}


def without(scenario: Scenario, rule: str) -> Scenario:
    if rule in OFF:
        return replace(scenario, policy=replace(scenario.policy, **{rule: OFF[rule]}))
    if rule in SEEN:
        routers = replace(scenario.cluster.routers, **{rule: SEEN[rule]})
        return replace(scenario, cluster=replace(scenario.cluster, routers=routers))
    if rule == "classes":
        pool = scenario.cluster
        p, d = (tuple(replace(n, classes=()) for n in nodes) for nodes in (pool.prefill, pool.decode))
        return replace(scenario, cluster=replace(pool, prefill=p, decode=d))
    at = {"harm": 7, "crowd": 8}[rule]
    classes = tuple(replace(c, weights=(*c.weights[:at], 0.0, *c.weights[at + 1 :])) for c in scenario.policy.classes)
    return replace(scenario, policy=replace(scenario.policy, classes=classes))


@pytest.mark.parametrize("rule", [*OFF, *SEEN, "classes", "harm", "crowd"])
def test_many_scenarios_would_end_otherwise_without_the_rule(rule):
    found = 0
    # Harm needs neighbours with targets of their own, which few scenarios have.
    for number in range(4 * SCENARIOS):
        scenario = build(number)
        changed = without(scenario, rule)
        if changed == scenario:
            continue
        before, after = (run_scenario(replay, one) for one in (scenario, changed))
        found += not np.array_equal(before.decode_node, after.decode_node) or before.counters != after.counters
        if found == 3:
            return
    raise AssertionError(f"{rule}: {found} scenarios")
