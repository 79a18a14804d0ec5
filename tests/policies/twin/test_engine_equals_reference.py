"""The compiled engine and the plain reference agree exactly, on scenarios in which everything happens that can."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

import numpy as np
import pytest

from policies.twin.outcomes import Replay, Status
from policies.twin.reference.pool import replay_reference
from policies.twin.replay import replay
from tests.policies.twin.scenario import Scenario
from tests.policies.twin.scenarios import FAMILIES, SCENARIOS, build

AT_LEAST = 30
COLUMNS = [field.name for field in fields(Replay) if field.name != "counters"]


def run(function, scenario: Scenario) -> Replay:
    return function(
        scenario.cluster,
        scenario.laws,
        scenario.policy,
        scenario.workload,
        seed=scenario.seed,
        estimated_output=scenario.estimated_output,
        expected_output=scenario.expected_output,
        decision_laws=scenario.decision_laws,
        noise=scenario.noise,
    )


@cache
def by_reference(number: int) -> Replay:
    return run(replay_reference, build(number))


@pytest.mark.parametrize("number", range(SCENARIOS))
def test_they_agree_on_every_row_and_counter(number):
    assert_same(run(replay, build(number)), by_reference(number))


def assert_same(found: Replay, expected: Replay) -> None:
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(found, column), getattr(expected, column), err_msg=column)
        assert getattr(found, column).dtype == getattr(expected, column).dtype, column
    assert found.counters == expected.counters


@pytest.mark.parametrize("counter", ["preemptions", "evictions", "hit_blocks", "blocked", "shared", "stale", "expired"])
def test_many_scenarios_show_it(counter):
    assert sum(1 for number in range(SCENARIOS) if getattr(by_reference(number).counters, counter)) >= AT_LEAST


@pytest.mark.parametrize(
    ("status", "at_least"),
    [(Status.COMPLETED, 200), (Status.REJECTED, 30), (Status.TOO_LARGE, 30), (Status.FAILED, 10)],
)
def test_many_scenarios_end_so(status, at_least):
    assert sum(1 for number in range(SCENARIOS) if status in by_reference(number).status) >= at_least


def test_every_family_decides_under_both_kinds_of_view_and_release():
    seen = set()
    for number in range(SCENARIOS):
        scenario = build(number)
        if (scenario.workload.forced_prefill < 0).all():
            live = scenario.cluster.routers.period_ns == 0
            seen.add((scenario.policy.family, live, scenario.cluster.discipline.release))
    assert len(seen) == len(FAMILIES) * 2 * 2
