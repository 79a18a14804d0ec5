"""Drills: what each does to a pool and its traffic, which ones a pool allows, and when a loss fails the gate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.errors import TwinError
from policies.evidence.bootstrap import Difference
from policies.evidence.drills import NAMES, DrillPlan, drill_gate, drilled, plan_drills, run_drills
from policies.policy import ClassPolicy, default_policy
from policies.search.workers import WorkerPool
from policies.twin.cluster import Cluster, RouterSetup, Uplink
from policies.twin.workload import Workload
from tests.policies import world
from tests.policies.stub import StubFactory

SAMPLED = RouterSetup(period_ns=1_000_000_000)
DAY = world.workload(2000, warm_up=500)
EVEN = Difference(0.0, -0.01, 0.01, 0.5, 0.5, 60)


def pool(prefill: int = 2, decode: int = 3, *, uplinks: tuple[Uplink, ...] = ()) -> Cluster:
    """The second D has the most blocks."""
    cluster = world.cluster(prefill, decode)
    nodes = tuple(replace(n, blocks=2000 if n.name == "d1" else n.blocks) for n in cluster.decode)
    return replace(cluster, decode=nodes, uplinks=uplinks, routers=SAMPLED)


def scored(workload: Workload) -> tuple[int, int]:
    at = workload.arrival_ns[workload.scored]
    return int(at[0]), int(at[-1])


def test_a_failure_takes_the_largest_d_out_for_the_middle_fifth() -> None:
    cluster, workload = drilled("decode_failure", pool(), DAY)
    (outage,) = cluster.faults.outages
    start, stop = scored(DAY)
    assert outage.node == "d1"
    assert (outage.start_ns - start) / (stop - start) == pytest.approx(0.4)
    assert (outage.stop_ns - start) / (stop - start) == pytest.approx(0.6)
    assert workload is DAY


def test_the_slowest_uplink_slows_down_else_the_port_of_the_largest_d() -> None:
    uplinks = (Uplink("a", "b", 100.0), Uplink("b", "a", 50.0), Uplink("a", "c", 50.0))
    (slow,) = drilled("slow_link", pool(uplinks=uplinks), DAY)[0].faults.slow
    assert (slow.port, slow.factor) == ("up:b>a", 0.25)
    (slow,) = drilled("slow_link", pool(), DAY)[0].faults.slow
    assert slow.port == "in:d1"
    assert scored(DAY)[0] < slow.start_ns < slow.stop_ns < scored(DAY)[1]


def test_a_rolling_restart_takes_every_node_once_within_the_window() -> None:
    faults = drilled("rolling_restart", pool(), DAY)[0].faults
    assert [w.node for w in faults.outages] == [w.node for w in faults.drains] == ["p0", "p1", "d0", "d1", "d2"]
    for drain, outage, following in zip(faults.drains, faults.outages, (*faults.drains[1:], None), strict=True):
        assert drain.stop_ns == outage.start_ns
        assert following is None or following.start_ns == outage.stop_ns
    start, stop = scored(DAY)
    assert start <= faults.drains[0].start_ns
    assert stop - start == pytest.approx(faults.outages[-1].stop_ns - faults.drains[0].start_ns, rel=1e-6)


def test_a_restart_takes_three_minutes_at_most_and_leaves_a_lone_node_alone() -> None:
    long = replace(DAY, arrival_ns=DAY.arrival_ns * 100)
    faults = drilled("rolling_restart", pool(prefill=1), long)[0].faults
    assert [w.node for w in faults.outages] == ["d0", "d1", "d2"]
    assert faults.outages[0].stop_ns - faults.drains[0].start_ns == 180_000_000_000
    middle = (faults.drains[0].start_ns + faults.outages[-1].stop_ns) / 2
    assert middle == pytest.approx(sum(scored(long)) / 2)


def test_telemetry_and_routers() -> None:
    cluster, _ = drilled("telemetry_gap", pool(), DAY)
    (gap,) = cluster.faults.gaps
    assert (gap.stop_ns - gap.start_ns) / (scored(DAY)[1] - scored(DAY)[0]) == pytest.approx(0.2)
    assert drilled("four_routers", pool(), DAY)[0].routers == replace(SAMPLED, count=4)


def test_a_burst_halves_the_gaps_of_the_middle_and_load_all() -> None:
    before = np.diff(DAY.arrival_ns[DAY.scored]).astype(np.float64)
    after = np.diff(drilled("burst", pool(), DAY)[1].arrival_ns[DAY.scored])
    middle = slice(int(0.47 * len(before)), int(0.53 * len(before)))
    np.testing.assert_allclose(after[middle], before[middle] / 2, atol=1)
    np.testing.assert_allclose(after[:300], before[:300])
    np.testing.assert_allclose(after[-300:], before[-300:])
    faster = drilled("load", pool(), DAY)[1].arrival_ns
    np.testing.assert_allclose(np.diff(faster), np.diff(DAY.arrival_ns) / 1.25, atol=1)


def test_a_fifth_gives_up_and_does_not_count() -> None:
    _, workload = drilled("cancellations", pool(), DAY)
    assert workload.cancel_ns is not None
    gone = workload.cancel_ns >= 0
    assert gone.mean() == pytest.approx(0.2, abs=0.03)
    np.testing.assert_array_equal(workload.scored, DAY.scored & ~gone)
    again = drilled("cancellations", pool(), DAY)[1].cancel_ns
    assert again is not None
    np.testing.assert_array_equal(again, workload.cancel_ns)


@pytest.mark.parametrize("name", NAMES)
def test_drills_hold_on_any_window_and_keep_the_order_of_the_requests(name: str) -> None:
    lone = replace(DAY, scored=np.arange(DAY.requests) == 700)
    nothing = replace(DAY, scored=np.zeros(DAY.requests, np.bool_))
    for workload in (lone, nothing):
        np.testing.assert_array_equal(drilled(name, pool(), workload)[1].prompt_tokens, DAY.prompt_tokens)


def test_an_unknown_drill_is_refused() -> None:
    with pytest.raises(TwinError, match="known"):
        drilled("flood", pool(), DAY)


def test_what_a_pool_does_not_allow_is_left_out_with_its_reason() -> None:
    assert plan_drills(pool(), 0.02) == DrillPlan(NAMES, {}, 0.02)
    small = replace(pool(1, 1), routers=RouterSetup(count=6))
    plan = plan_drills(small, 0.01)
    assert plan.names == ("burst", "cancellations", "slow_link", "load")
    assert set(plan.left_out) == set(NAMES) - set(plan.names)
    gate = drill_gate(dict.fromkeys(plan.names, EVEN), plan)
    assert gate.status == "pass"
    for reason in (
        "decode_failure was left out: the pool has one D",
        "rolling_restart was left out",
        "6 routers",
        "telemetry_gap was left out: its routers see the live state",
    ):
        assert reason in gate.detail
    assert drill_gate({}, plan).status == "not_run"


@pytest.mark.parametrize(
    ("lead", "status"),
    [
        (Difference(-0.03, -0.05, -0.01, 1.0, 0.001, 60), "fail"),
        (Difference(-0.03, -0.07, 0.001, 0.9, 0.05, 60), "pass"),  # the interval reaches 0
        (Difference(-0.02, -0.03, -0.01, 1.0, 0.001, 60), "pass"),  # on the margin
        (Difference(0.03, 0.01, 0.05, 0.001, 1.0, 60), "pass"),
    ],
)
def test_a_loss_beyond_the_margin_and_beyond_chance_fails(lead: Difference, status: str) -> None:
    gate = drill_gate({"burst": EVEN, "load": lead}, DrillPlan(("burst", "load")))
    assert gate.status == status
    assert (gate.numbers["load.value"], gate.numbers["load.low"]) == (lead.value, lead.low)
    assert gate.numbers["burst.high"] == EVEN.high
    assert gate.threshold == -0.02


def test_the_detail_names_the_worst_and_a_failed_one_before_a_lower_one_within_chance() -> None:
    failed = Difference(-0.03, -0.05, -0.01, 1.0, 0.001, 60)
    vague = Difference(-0.05, -0.2, 0.1, 0.9, 0.1, 60)
    gate = drill_gate({"burst": vague, "load": failed}, DrillPlan(("burst", "load")))
    assert (gate.status, gate.value, gate.interval) == ("fail", -0.03, (-0.05, -0.01))
    assert "1 of 2 drills fail; the worst is load" in gate.detail
    assert "-3.00 points [-5.00, -1.00], accepted are -2.00" in gate.detail
    assert "2 drills hold; the worst is burst" in drill_gate({"burst": vague, "load": EVEN}, DrillPlan(())).detail


def test_a_policy_is_not_drilled_against_itself() -> None:
    policy = default_policy((ClassPolicy("chat"),))
    unused = WorkerPool(StubFactory(), 1)  # not entered: it would refuse to work

    def lead(*scores: object) -> Difference:
        raise AssertionError(scores)

    gate = run_drills(unused, policy, policy, ("d3",), DrillPlan(NAMES), lead)
    assert gate.status == "pass"
    assert "incumbent's own policy" in gate.detail
