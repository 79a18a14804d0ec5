"""Transfers by hand: overlap, handshakes and links that nobody shares. A port moves one token a ms (`tiny`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.twin.cluster import Discipline
from policies.twin.outcomes import Replay
from policies.twin.reference.pool import replay_reference
from policies.twin.replay import replay
from tests.policies.twin import tiny
from tests.policies.twin.scenarios import SCENARIOS, build
from tests.policies.twin.test_engine_equals_reference import by_reference
from tests.policies.twin.tiny import MS


@pytest.fixture(params=[replay_reference, replay], ids=["reference", "engine"])
def run(request):
    def go(load, *, contention="share", discipline=None, pool=None, **transfer) -> Replay:
        laws = tiny.laws()
        laws = replace(laws, transfer=replace(laws.transfer, **transfer))
        rules = replace(discipline or Discipline(chunk_tokens=64), contention=contention)
        known = np.full(load.requests, 16, np.int32)
        pool = pool or tiny.cluster(discipline=rules)
        return request.param(pool, laws, tiny.POLICY, load, seed=0, estimated_output=known, expected_output=known)

    return go


def drained_ms(result: Replay) -> list[float]:
    return ((result.transfer_drained_ns - result.transfer_started_ns) / MS).tolist()


# 40 prompt tokens: a P step of 14 ms, 40 ms on the wire.
ONE = tiny.workload((0, 40, 1), pairs=[(0, 0)])


@pytest.mark.parametrize(
    ("transfer", "expected_ms"),
    [
        ({}, 40.0),
        ({"overlap_frac": 0.5}, 33.0),
        ({"overlap_frac": 0.5, "last_frac": 0.9}, 36.0),
        ({"handshake_s": 0.010}, 50.0),
        ({"handshake_s": 0.010, "overlap_frac": 0.5}, 43.0),
        ({"handshake_s": 0.004, "overlap_frac": 0.5}, 37.0),
        ({"wire_frac": 0.1, "overlap_frac": 1.0}, 0.0),
        ({"wire_frac": 0.5, "overlap_frac": 1.0, "last_frac": 0.5}, 10.0),
    ],
)
def test_what_the_compute_covers_and_what_a_new_pair_waits(run, transfer, expected_ms):
    assert drained_ms(run(ONE, **transfer)) == [expected_ms]


def test_it_is_what_the_law_says_is_exposed(run):
    law = {"overlap_frac": 0.7, "last_frac": 0.2, "handshake_s": 0.003}
    laws = replace(tiny.laws().transfer, **law)
    exposed = laws.exposed_s("local", 40_000, 1e6, 14e-3, handshake_s=0.003)
    assert drained_ms(run(ONE, **law)) == [pytest.approx(exposed * 1e3, abs=1e-6)]


def test_only_the_first_transfer_of_a_pair_waits(run):
    load = tiny.workload((0, 40, 1), (200, 40, 1), pairs=[(0, 0), (0, 0)])
    assert drained_ms(run(load, handshake_s=0.010)) == [50.0, 40.0]


def test_the_second_does_not_wait_for_the_first_ones_handshake(run):
    """Both are handed off at 14 ms; the first drains from 114 ms on."""
    load = tiny.workload((0, 20, 1), (0, 20, 1), pairs=[(0, 0), (0, 0)])
    assert drained_ms(run(load, handshake_s=0.1)) == [120.0, 20.0]


@pytest.mark.parametrize(("contention", "expected_ms"), [("share", [40.0, 40.0]), ("none", [20.0, 20.0])])
def test_two_transfers_of_one_port(run, contention, expected_ms):
    load = tiny.workload((0, 20, 1), (0, 20, 1), pairs=[(0, 0), (0, 0)])
    assert drained_ms(run(load, contention=contention)) == expected_ms


@pytest.mark.parametrize("field", ["overlap_frac", "last_frac", "handshake_s"])
def test_many_scenarios_have_it(field):
    assert sum(getattr(build(number).laws.transfer, field) > 0 for number in range(SCENARIOS)) >= 30


def test_many_scenarios_do_not_share():
    alone = [number for number in range(SCENARIOS) if build(number).cluster.discipline.contention == "none"]
    assert len(alone) >= 30
    steady = [number for number in alone if not build(number).cluster.faults.slow]
    assert all(by_reference(number).counters.shared == 0 for number in steady[:12])
