"""The search's benchmark: its pools are what they say, and nights whose outcome is known end so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.replay import mooncake
from benchmarks.search import nights, rivals, speed, traffic
from benchmarks.search.__main__ import EQUALS, PARTS
from benchmarks.search.pools import POOLS
from benchmarks.search.traffic import Trace
from policies.search.cases import Case, CaseScore
from policies.twin.transforms import take
from policies.twin.workload import Workload

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
    trace = Trace(take(mooncake.read_trace(), np.arange(3_000)))
    pool = POOLS["a"]
    train = trace.day(pool, 1.0, 1, train=True)
    test = trace.day(pool, 1.0, 11, train=False)
    last = train.arrival_ns.max()
    assert test.arrival_ns[test.scored].min() > last - 2 * traffic.STAMP_NS
    assert train.requests < test.requests == pool.copies * trace.trace.requests


@TRACE
def test_a_poisoned_twin_fails_where_the_true_one_passes():
    gates = nights.poisoned(take(mooncake.read_trace(), np.arange(6_000)))
    assert {name: gate.status for name, gate in gates.items()} == {
        "true": "pass", "true_policy": "pass", "poisoned": "fail", "poisoned_policy": "fail",
    }  # fmt: skip


def test_a_search_that_is_killed_goes_on_where_it_was():
    assert speed.KILLS == 5
    assert speed._short().batch * 2 * (speed.KILLS + 1) <= speed._short().trials


def test_pieces_of_a_day_are_of_as_much_weight_each_and_loads_of_a_day_are_one_slice():
    weights = (5.0, 5.0, 10.0, 10.0, 0.0, 10.0)
    scores = [_score(day, load, met, weights) for day, load, met in (("x", 1.0, 1.0), ("x", 1.1, 0.5), ("w", 1.0, 0.0))]
    assert rivals.hard_slices(scores) == pytest.approx([0.0] * 4 + [0.75] * 4)


def _score(day: str, load: float, met: float, weights: tuple[float, ...]) -> CaseScore:
    none = nights.Equals()(POOLS["a"].default, Case(day, load))
    return replace(none, block_value=tuple(met * w for w in weights), block_weight=weights)


def test_ways_to_search_are_held_against_each_other_at_equal_cost():
    """On a tiny trace of one pool: every way has a figure a seed, and routecal leads itself by nothing."""
    pool = replace(POOLS["g"], copies=1)
    held = {each.way: each for each in rivals.held_out(pool, _tiny(), 1.0, 3, 1, seeds=(1, 2))}
    assert all(len(each.goodput_frac) == 2 for each in held.values())
    assert {rivals.DEFAULT, "plain lmetric", "random search", "no race", rivals.HARD_BEST} <= set(held)
    assert held[rivals.CHOSEN].to_chosen.value == 0.0
    assert held[rivals.DEFAULT].goodput_frac[0] == held[rivals.DEFAULT].goodput_frac[1]


def _tiny() -> Trace:
    """A hundred requests of one kind."""
    rows, free = 100, np.full(100, -1, np.int32)
    return Trace(
        Workload(
            arrival_ns=np.arange(rows) * 500_000_000,
            prompt_tokens=np.full(rows, 6_000, np.int32),
            output_tokens=np.full(rows, 200, np.int32),
            class_index=np.zeros(rows, np.int32),
            block_offset=np.zeros(rows + 1, np.int64),
            block_ids=np.zeros(0, np.int32),
            forced_prefill=free,
            forced_decode=free,
            scored=np.ones(rows, np.bool_),
        )
    )
