"""The search's benchmark: its pools are what they say, and nights whose outcome is known end so."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.replay import mooncake
from benchmarks.search import nights, speed, traffic
from benchmarks.search.__main__ import EQUALS, PARTS
from benchmarks.search.pools import POOLS
from policies.twin.transforms import take

TRACE = pytest.mark.skipif(not mooncake.TRACE.exists(), reason=f"{mooncake.TRACE} is not here")


def test_pools_are_what_they_say():
    assert set(POOLS) <= set(PARTS)
    uneven = POOLS["c100"].cluster
    assert [[n.rack for n in side].count("a") for side in (uneven.prefill, uneven.decode)] == [5, 3]
    assert {link.gbps for link in uneven.uplinks} == {100.0}
    slow = POOLS["f"].laws
    assert slow.prefill.prefill_s("p0", 1000, 0.0) == pytest.approx(1.3 * slow.prefill.prefill_s("p1", 1000, 0.0))
    assert POOLS["g"].class_of(np.array([100, 4_096, 20_000, 10**6], np.int32)).tolist() == [0, 1, 2, 3]
    assert (POOLS["h"].cluster.routers.count, POOLS["h"].freedom.sampled) == (8, True)


def test_equal_policies_are_not_called_better():
    assert nights.better_of_equals(3, EQUALS) == 0


@TRACE
def test_train_and_test_traffic_are_apart():
    trace = take(mooncake.read_trace(), np.arange(3_000))
    pool = POOLS["a"]
    train = traffic.day_of(pool, trace, 1.0, 1, train=True)
    test = traffic.day_of(pool, trace, 1.0, 11, train=False)
    last = train.arrival_ns.max()
    assert test.arrival_ns[test.scored].min() > last - 2 * traffic.STAMP_NS
    assert train.requests < test.requests == pool.copies * trace.requests


@TRACE
def test_a_poisoned_twin_fails_where_the_true_one_passes():
    gates = nights.poisoned(take(mooncake.read_trace(), np.arange(6_000)))
    assert {name: gate.status for name, gate in gates.items()} == {
        "true": "pass", "true_policy": "pass", "poisoned": "fail", "poisoned_policy": "fail",
    }  # fmt: skip


def test_a_search_that_is_killed_goes_on_where_it_was():
    assert speed.KILLS == 5
    assert speed._short().batch * 2 * (speed.KILLS + 1) <= speed._short().trials
