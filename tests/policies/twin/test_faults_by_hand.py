"""Faults by hand; both forms of the twin run them (`tiny`). Alone, 40 + 3 tokens take 14 + 40 + 15 ms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.errors import TwinError
from policies.twin.cluster import RouterSetup
from policies.twin.faults import Drain, Faults, Outage, SlowLink, Window, rolling_restart
from policies.twin.outcomes import NOT_YET, Replay, Status
from policies.twin.reference.pool import replay_reference
from policies.twin.replay import replay
from policies.twin.workload import Workload
from tests.policies.twin import tiny
from tests.policies.twin.scenarios import SCENARIOS, build
from tests.policies.twin.test_engine_equals_reference import by_reference
from tests.policies.twin.tiny import MS

BY = pytest.mark.parametrize("function", [replay_reference, replay])
ONE = tiny.workload((0, 40, 3), pairs=[(0, 0)])


def run(function, load: Workload, faults: Faults, **pool) -> Replay:
    cluster = replace(tiny.cluster(**pool), faults=faults)
    known = np.full(load.requests, 16, np.int32)
    return function(cluster, tiny.laws(), tiny.POLICY, load, seed=0, estimated_output=known, expected_output=known)


def ms(times_ns: np.ndarray) -> list[float]:
    return [float(t) / MS if t != NOT_YET else NOT_YET for t in times_ns]


@BY
@pytest.mark.parametrize(
    ("node", "at_ms", "status"),
    [
        ("p-0", 5, Status.FAILED),
        ("p-0", 53, Status.FAILED),
        ("p-0", 55, Status.COMPLETED),  # its KV was sent
        ("d-0", 13, Status.FAILED),  # D is out when it is handed off
        ("d-0", 30, Status.FAILED),
        ("d-0", 68, Status.FAILED),
        ("d-0", 70, Status.COMPLETED),
    ],
)
def test_what_is_on_a_node_that_goes_fails(function, node, at_ms, status):
    result = run(function, ONE, Faults(outages=(Outage(at_ms * MS, 500 * MS, node),)))
    assert result.status.tolist() == [status]


@BY
def test_a_d_that_is_back_at_the_hand_off_is_none_the_worse(function):
    assert run(function, ONE, Faults(outages=(Outage(5 * MS, 14 * MS, "d-0"),))).status.tolist() == [Status.COMPLETED]


@BY
def test_a_cache_is_lost_with_its_node(function):
    load = tiny.workload((0, 40, 1), (100, 40, 1), pairs=[(0, 0)] * 2, blocks=[[0, 1], [0, 1]])
    kept = run(function, load, Faults())
    lost = run(function, load, Faults(outages=(Outage(90 * MS, 95 * MS, "p-0"),)))
    assert kept.cached_tokens.tolist() == [0, 32]
    assert lost.cached_tokens.tolist() == [0, 0]
    assert lost.counters.evictions == 0


@BY
def test_a_drained_node_serves_what_it_has_and_the_next_one_takes_the_rest(function):
    load = tiny.workload((0, 40, 3), (1, 40, 3), (2, 40, 3), pairs=[(-1, -1)] * 3)
    faults = Faults(drains=(Drain(1 * MS, 50 * MS, "p-0"),), seen="at_once")
    result = run(function, load, faults, prefill_blocks=(64, 64))
    assert result.prefill_node.tolist() == [0, 1, 1]
    assert (result.status == Status.COMPLETED).all()


@BY
def test_who_does_not_know_is_refused_and_decides_again(function):
    """The router's samples are older than the drain; round robin's next P after the refusal is the other."""
    load = tiny.workload((0, 40, 3), (20, 40, 3), (21, 40, 3), pairs=[(-1, -1)] * 3)
    faults = Faults(drains=(Drain(10 * MS, 90 * MS, "p-1"),))
    late = RouterSetup(period_ns=100 * MS, delay_ns=MS)
    result = run(function, load, faults, prefill_blocks=(64, 64), routers=late)
    assert result.prefill_node.tolist() == [0, 0, 0]
    alone = run(function, load, Faults(drains=(Drain(10 * MS, 90 * MS, "p-0"),)), routers=late)
    assert alone.status.tolist() == [Status.COMPLETED, Status.REJECTED, Status.REJECTED]


@BY
def test_a_forced_pair_that_is_closed_fails(function):
    result = run(function, ONE, Faults(drains=(Drain(0, 1, "d-0"),)))
    assert result.status.tolist() == [Status.FAILED]
    assert result.prefill_node.tolist() == [-1]


@BY
def test_a_slow_port_moves_fewer_bytes(function):
    """10 ms at full speed, 20 at half of it, the last 20 tokens at full speed again."""
    faults = Faults(slow=(SlowLink(24 * MS, 44 * MS, "in:d-0", 0.5),))
    assert ms(run(function, ONE, faults).transfer_drained_ns) == [64.0]


@BY
def test_no_sample_of_a_gap_comes(function):
    load = tiny.workload((0, 40, 3), (35, 40, 3), (75, 40, 3), pairs=[(-1, -1)] * 3)
    setup = RouterSetup(period_ns=10 * MS, delay_ns=MS)
    whole = run(function, load, Faults(), routers=setup)
    gone = run(function, load, Faults(gaps=(Window(0, 90 * MS),)), routers=setup)
    assert (whole.counters.stale, gone.counters.stale) == (2, 0)


def test_a_rolling_restart_is_one_node_after_the_other():
    drains, outages = rolling_restart(["a", "b"], start_ns=10, drain_ns=5, restart_ns=2)
    assert drains == (Drain(10, 15, "a"), Drain(17, 22, "b"))
    assert outages == (Outage(15, 17, "a"), Outage(22, 24, "b"))


def test_what_is_not_there_is_refused():
    for faults in (Faults(drains=(Drain(0, 1, "x"),)), Faults(slow=(SlowLink(0, 1, "in:x", 0.5),))):
        with pytest.raises(TwinError, match="of the cluster"):
            run(replay, ONE, faults)
    for wrong in (lambda: Window(5, 5), lambda: Faults(slow=(SlowLink(0, 1, "in:d-0", 0.0),))):
        with pytest.raises(TwinError):
            wrong()


def test_many_scenarios_have_faults_that_hurt():
    broken = [number for number in range(SCENARIOS) if build(number).cluster.faults != Faults()]
    assert len(broken) >= 60
    for kind in ("drains", "outages", "slow", "gaps"):
        assert sum(bool(getattr(build(number).cluster.faults, kind)) for number in broken) >= 25
    refused = lost = 0
    for number in broken:
        result = by_reference(number)
        failed = result.status == Status.FAILED
        refused += bool(failed[result.prefill_node < 0].any())
        lost += bool(failed[result.prefill_node >= 0].any())
        if refused >= 3 and lost >= 5:
            return
    raise AssertionError((refused, lost))
