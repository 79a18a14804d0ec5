"""Drills: what befalls a pool on a bad day, where the winner must not fall behind the incumbent beyond a margin.

A drill makes another cluster and workload of a validation day's. "Middle" is the middle fifth of the scored window, so
that what goes wrong meets queues and caches that run, and the recovery is scored too. Nothing is left to luck: nodes
and links are chosen by size, the first listed one among equals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from features.errors import TwinError
from models.portable.transfer import ingress, uplink
from policies.evidence.bootstrap import Difference
from policies.evidence.gates import DRILLS, Gate, not_run
from policies.evidence.verdict import points
from policies.policy import Policy
from policies.search.cases import Case, CaseScore
from policies.search.workers import WorkerPool
from policies.twin import transforms
from policies.twin.cluster import Cluster, Node
from policies.twin.faults import Outage, SlowLink, Window, rolling_restart
from policies.twin.workload import Workload

Drilled: TypeAlias = tuple[Cluster, Workload]
Lead: TypeAlias = Callable[[Sequence[CaseScore], Sequence[CaseScore]], Difference]
"""The winner's difference from the incumbent over their scores on the same cases."""

BURST = 2.0
CANCELLED_FRAC, PATIENCE_NS, CANCELLED_SEED = 0.2, 5e9, 1
SLOW = 0.25
RESTART_NS = 180_000_000_000
DRAIN_FRAC = 2 / 3
ROUTERS = 4
LOAD = 1.25
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """Drills to run, those that the pool does not allow with the reason, and the loss in goodput that is accepted."""

    names: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    margin: float = 0.02


def plan_drills(cluster: Cluster, margin: float) -> DrillPlan:
    """All drills that mean something on the cluster."""
    left_out = {}
    if len(cluster.decode) < 2:
        left_out["decode_failure"] = "the pool has one D"
    if not _restarted(cluster):
        left_out["rolling_restart"] = "the pool has one P and one D"
    if cluster.routers.period_ns == 0:
        left_out["telemetry_gap"] = "its routers see the live state"
    if cluster.routers.count >= ROUTERS:
        left_out["four_routers"] = f"the pool has {cluster.routers.count} routers"
    return DrillPlan(tuple(name for name in NAMES if name not in left_out), left_out, margin)


def drilled(name: str, cluster: Cluster, workload: Workload) -> Drilled:
    """The cluster and the workload under a drill of `NAMES`. Rows stay in their order. TwinError for another name."""
    if name not in _DRILLS:
        raise TwinError("a drill must be one that is known", value=name, hint=f"one of {', '.join(NAMES)}")
    return _DRILLS[name](cluster, workload)


def run_drills(
    pool: WorkerPool, winner: Policy, incumbent: Policy, days: Sequence[str], plan: DrillPlan, lead: Lead
) -> Gate:
    """Replay both policies on the days under every drill of the plan and judge them; a policy equals itself."""
    if winner == incumbent:
        detail = "the winner is the incumbent's own policy, which no drill can tell from itself"
        return Gate(DRILLS, "pass", detail, 0.0, -plan.margin)
    cases = [Case(day, drill=name) for name in plan.names for day in days]
    found = [
        {name: scores[k * len(days) : (k + 1) * len(days)] for k, name in enumerate(plan.names)}
        for scores in pool.by_policy([winner, incumbent], cases)
    ]
    return drill_gate({name: lead(found[0][name], found[1][name]) for name in plan.names}, plan)


def drill_replays(winner: Policy, incumbent: Policy, days: int, plan: DrillPlan) -> int:
    """Replays that `run_drills` makes on so many days."""
    return 0 if winner == incumbent else 2 * len(plan.names) * days


def drill_gate(leads: Mapping[str, Difference], plan: DrillPlan) -> Gate:
    """A drill fails where the winner's goodput is lower by more than the margin and the interval does not reach 0."""
    skipped = "; ".join(f"{name} was left out: {reason}" for name, reason in plan.left_out.items())
    if not leads:
        return not_run(DRILLS, skipped)
    failed = [name for name, lead in leads.items() if lead.value < -plan.margin and lead.high < 0]
    worst = min(failed or leads, key=lambda name: leads[name].value)
    numbers = {
        f"{name}.{part}": value
        for name, lead in leads.items()
        for part, value in (("value", lead.value), ("low", lead.low), ("high", lead.high))
    }
    outcome = f"{len(failed)} of {len(leads)} drills fail" if failed else f"{len(leads)} drills hold"
    detail = (
        f"{outcome}; the worst is {worst}, where goodput differs from the incumbent's by {points(leads[worst])}, "
        f"accepted are {-100 * plan.margin:+.2f}"
    )
    return Gate(
        DRILLS,
        "fail" if failed else "pass",
        f"{detail}; {skipped}" if skipped else detail,
        value=leads[worst].value,
        threshold=-plan.margin,
        interval=(leads[worst].low, leads[worst].high),
        numbers=numbers,
    )


def _burst(cluster: Cluster, workload: Workload) -> Drilled:
    """The middle's requests come twice as dense."""
    middle = _middle(workload)
    return cluster, transforms.burst(workload, start_ns=middle.start_ns, stop_ns=middle.stop_ns, factor=BURST)


def _cancellations(cluster: Cluster, workload: Workload) -> Drilled:
    """A fifth of the clients give up, 5 s after arrival in the mean. As everywhere in a night they do not count: what
    the drill shows is what they do to the others.
    """
    drawn = transforms.draw_cancellations(workload, CANCELLED_FRAC, mean_ns=PATIENCE_NS, seed=CANCELLED_SEED)
    assert drawn.cancel_ns is not None, "it has just been drawn"
    return cluster, replace(drawn, scored=workload.scored & (drawn.cancel_ns < 0))


def _decode_failure(cluster: Cluster, workload: Workload) -> Drilled:
    """The D with the most blocks is gone for the middle: most answers fail with it, and least room is left."""
    middle = _middle(workload)
    outage = Outage(middle.start_ns, middle.stop_ns, _largest(cluster.decode).name)
    return replace(cluster, faults=replace(cluster.faults, outages=(*cluster.faults.outages, outage))), workload


def _slow_link(cluster: Cluster, workload: Workload) -> Drilled:
    """A link carries a quarter for the middle: the slowest uplink, which fills first; without uplinks the ingress of
    the D with the most blocks, which receives the most.
    """
    middle = _middle(workload)
    if cluster.uplinks:
        slowest = min(cluster.uplinks, key=lambda link: link.gbps)
        port = uplink(slowest.from_rack, slowest.to_rack)
    else:
        port = ingress(_largest(cluster.decode).name)
    slow = SlowLink(middle.start_ns, middle.stop_ns, port, SLOW)
    return replace(cluster, faults=replace(cluster.faults, slow=(*cluster.faults.slow, slow))), workload


def _rolling_restart(cluster: Cluster, workload: Workload) -> Drilled:
    """Every node, one after the other over the scored window, is drained and restarted with an empty cache; three
    minutes a node at the most. The only node of a role stays: without it the pool serves nothing.
    """
    start, stop = _scored(workload)
    nodes = _restarted(cluster)
    turn = min((stop - start) // len(nodes), RESTART_NS)
    drain = int(DRAIN_FRAC * turn)
    drains, outages = rolling_restart(
        nodes, start_ns=(start + stop - turn * len(nodes)) // 2, drain_ns=drain, restart_ns=turn - drain
    )
    faults = replace(
        cluster.faults, drains=(*cluster.faults.drains, *drains), outages=(*cluster.faults.outages, *outages)
    )
    return replace(cluster, faults=faults), workload


def _telemetry_gap(cluster: Cluster, workload: Workload) -> Drilled:
    """No sample of the middle ever comes."""
    return replace(cluster, faults=replace(cluster.faults, gaps=(*cluster.faults.gaps, _middle(workload)))), workload


def _four_routers(cluster: Cluster, workload: Workload) -> Drilled:
    """Four routers share the requests, and none knows what the others have in flight."""
    return replace(cluster, routers=replace(cluster.routers, count=ROUTERS)), workload


def _load(cluster: Cluster, workload: Workload) -> Drilled:
    """All traffic comes 1.25 times as dense."""
    return cluster, transforms.scale_load(workload, LOAD)


_DRILLS: Mapping[str, Callable[[Cluster, Workload], Drilled]] = {
    "burst": _burst,
    "cancellations": _cancellations,
    "decode_failure": _decode_failure,
    "slow_link": _slow_link,
    "rolling_restart": _rolling_restart,
    "telemetry_gap": _telemetry_gap,
    "four_routers": _four_routers,
    "load": _load,
}
NAMES = tuple(_DRILLS)


def _scored(workload: Workload) -> tuple[int, int]:
    """First and last scored arrival; at least a second, so that every window in it holds time."""
    at = workload.arrival_ns[np.flatnonzero(workload.scored)]
    start = int(at[0]) if len(at) else 0
    return start, max(int(at[-1]) if len(at) else 0, start + _NS_PER_S)


def _middle(workload: Workload) -> Window:
    """The middle fifth of the scored window."""
    start, stop = _scored(workload)
    return Window(start + 2 * (stop - start) // 5, start + 3 * (stop - start) // 5)


def _largest(nodes: Sequence[Node]) -> Node:
    return max(nodes, key=lambda node: node.blocks)


def _restarted(cluster: Cluster) -> list[str]:
    """Nodes of the roles that have more than one."""
    return [node.name for role in (cluster.prefill, cluster.decode) if len(role) > 1 for node in role]
