"""Scenarios with other rules of transfers."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from tests.policies.twin.scenario import Scenario


def vary_links(rng: Generator, scenario: Scenario) -> Scenario:
    """The scenario with rules of this part drawn anew."""
    laws, cluster = scenario.laws, scenario.cluster
    transfer = laws.transfer
    if rng.random() < 0.4:
        last_frac = float(rng.choice([0.0, 0.05, 0.5]))
        transfer = replace(transfer, overlap_frac=float(rng.uniform(0.1, 1.0)), last_frac=last_frac)
    if rng.random() < 0.4:
        transfer = replace(transfer, handshake_s=float(rng.choice([1e-3, 0.02, 0.1])))
    if rng.random() < 0.25:
        cluster = replace(cluster, discipline=replace(cluster.discipline, contention="none"))
    if rng.random() < 0.2:
        transfer = replace(transfer, contention="none")  # what routers believe of the pool's links
    believed = scenario.decision_laws
    if believed is not None and rng.random() < 0.5:
        believed = replace(believed, transfer=replace(believed.transfer, overlap_frac=0.6, last_frac=0.1))
    return replace(scenario, cluster=cluster, laws=replace(laws, transfer=transfer), decision_laws=believed)
