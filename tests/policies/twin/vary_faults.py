"""Scenarios with other faults, cancellations, sessions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from models.portable.transfer import egress, ingress, uplink
from policies.twin.cluster import Cluster
from policies.twin.faults import Drain, Faults, Outage, SlowLink, Window
from tests.policies.twin.scenario import Scenario

MS = 1_000_000


def vary_faults(rng: Generator, scenario: Scenario) -> Scenario:
    """The scenario with rules of this part drawn anew."""
    load = scenario.workload
    if rng.random() < 0.4:
        # From before the arrival to after the answer, some with other events at their instant.
        after_ns = rng.lognormal(17.5, 1.5, load.requests).astype(np.int64) - 2_000_000
        after_ns[rng.random(load.requests) < 0.1] = 0
        cancelled = rng.random(load.requests) < rng.choice([0.1, 0.5])
        load = replace(load, cancel_ns=np.where(cancelled, np.maximum((load.arrival_ns + after_ns) // MS * MS, 0), -1))
    if rng.random() < 0.25:
        rows = np.arange(load.requests)
        parent = np.where(rng.random(load.requests) < rng.choice([0.2, 0.7]), rows - rng.integers(1, 12, len(rows)), -1)
        think_ns = np.maximum(rng.exponential(float(rng.choice([1e3, 2e7])), len(rows)) // MS * MS, 1).astype(np.int64)
        parent = np.maximum(parent, -1).astype(np.int32)
        load = replace(load, parent=parent, think_ns=np.where(parent < 0, -1, think_ns))
    cluster = scenario.cluster
    if rng.random() < 0.35:
        cluster = replace(cluster, faults=make_faults(rng, cluster, int(load.arrival_ns[-1]) + 200 * MS))
    return replace(scenario, workload=load, cluster=cluster)


def make_faults(rng: Generator, cluster: Cluster, until_ns: int) -> Faults:
    """Some of every kind, also on one node at once, with times that other events have too."""
    nodes = [n.name for n in (*cluster.prefill, *cluster.decode)]
    ports = [egress(n.name) for n in cluster.prefill] + [ingress(n.name) for n in cluster.decode]
    ports += [uplink(u.from_rack, u.to_rack) for u in cluster.uplinks]

    def windows(most: int) -> list[tuple[int, int]]:
        starts = [int(rng.integers(0, until_ns // MS)) * MS for _ in range(rng.integers(0, most + 1))]
        return [(start, start + int(rng.integers(1, until_ns // (2 * MS) + 2)) * MS) for start in starts]

    return Faults(
        drains=tuple(Drain(*w, str(rng.choice(nodes))) for w in windows(2)),
        outages=tuple(Outage(*w, str(rng.choice(nodes))) for w in windows(2)),
        slow=tuple(SlowLink(*w, str(rng.choice(ports)), float(rng.choice([0.1, 0.5, 2.0]))) for w in windows(3)),
        gaps=tuple(Window(*w) for w in windows(1)),
        seen=str(rng.choice(["telemetry", "at_once"])),  # type: ignore[arg-type]
    )
