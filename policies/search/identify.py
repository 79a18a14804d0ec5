"""Which knobs no traffic of this pool can tell apart: they stay at their default and nobody reads meaning into them."""

from __future__ import annotations

from collections.abc import Sequence

from models.portable.estimators import Estimators
from models.portable.transfer import egress, ingress, uplink
from policies.objective import Goal
from policies.search.moves import DRAWS_D, DRAWS_P, TEMPERATURE_D, TEMPERATURE_P
from policies.twin.cluster import Cluster
from policies.twin.workload import Workload

SAME_FRAC = 0.02
"""Factors and rates that differ by less are the same: no more is known of them."""


def frozen_knobs(cluster: Cluster, estimators: Estimators, goal: Goal, workloads: Sequence[Workload]) -> dict[str, str]:
    """Knob -> why it is frozen, from the pool's facts and the fitted laws."""
    frozen: dict[str, str] = {}
    budget = cluster.discipline.chunk_tokens
    if all(
        _same([estimators.prefill.prefill_s(n.name, t, 0.0) for n in cluster.prefill]) for t in (budget, budget / 8)
    ):
        frozen["PrefillCompute"] = "all P nodes are equally fast, so the term is the same for every candidate"
    if _same(_path_rates(cluster, estimators)) and not cluster.uplinks:
        frozen["TransferTime"] = "all paths have the same rate"
    if all(c.ttft_s is None and c.tpot_s is None for c in goal.classes):
        frozen["SloRisk"] = "no class has a target"
    if all(c.tpot_s is None for c in goal.classes):
        frozen["NeighbourHarm"] = "no class has a TPOT target"
    if all(len(w.block_ids) == 0 for w in workloads):
        frozen["PrefixBenefit"] = "the logs carry no prompt blocks"
    if cluster.routers.count == 1 and cluster.routers.period_ns == 0:
        reason = "one router that sees the live state cannot herd"
        frozen |= dict.fromkeys((TEMPERATURE_P, TEMPERATURE_D, DRAWS_P, DRAWS_D), reason)
    return frozen


def _path_rates(cluster: Cluster, estimators: Estimators) -> list[float]:
    """Unloaded Gb/s of every pair."""
    law = estimators.transfer
    links = {(u.from_rack, u.to_rack): u.gbps * law.port(uplink(u.from_rack, u.to_rack)) for u in cluster.uplinks}
    rates = []
    for p in cluster.prefill:
        for d in cluster.decode:
            kind = "local" if p.rack == d.rack else "cross"
            limit = links.get((p.rack, d.rack), float("inf")) if kind == "cross" else float("inf")
            sent, received = p.port_gbps * law.port(egress(p.name)), d.port_gbps * law.port(ingress(d.name))
            rates.append(min(sent, limit, received) * law.efficiency[kind])
    return rates


def _same(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= SAME_FRAC * max(values)
