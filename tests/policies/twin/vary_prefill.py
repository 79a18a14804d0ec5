"""Scenarios with other rules of P nodes and their caches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from models.portable.cache import CacheLaw
from tests.policies.twin.scenario import Scenario


def vary_prefill(rng: Generator, scenario: Scenario) -> Scenario:
    """The scenario with rules of this part drawn anew."""
    cluster = scenario.cluster
    discipline = replace(
        cluster.discipline,
        step_tokens=str(rng.choice(["sum", "mean"])),
        queue_order=str(rng.choice(["fifo", "priority"])),
    )
    routers = cluster.routers
    if rng.random() < 0.6:
        routers = replace(
            routers,
            cache_period_ns=int(rng.choice([0, 4_000_000, 150_000_000])),
            cache_delay_ns=int(rng.choice([0, 1_000_000, 90_000_000])),
            cache_loss_frac=float(rng.choice([0.0, 0.0, 0.1, 0.5])),
        )
    workload = scenario.workload
    if rng.random() < 0.7:
        workload = replace(workload, priority=rng.choice([-3, 0, 5], workload.requests).astype(np.int32))
    laws = scenario.laws
    if rng.random() < 0.5:
        caches = {
            node.name: CacheLaw(capacity_blocks=node.blocks, ttl_s=float(rng.choice([0.01, 0.06, 0.4])))
            for node in cluster.prefill
            if node.name not in laws.cache or rng.random() < 0.5
        }
        laws = replace(laws, cache={**laws.cache, **caches})
    cluster = replace(cluster, discipline=discipline, routers=routers)
    return replace(scenario, cluster=cluster, workload=workload, laws=laws)
