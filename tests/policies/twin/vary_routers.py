"""Scenarios with other what routers see, and when they choose."""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from policies.policy import DECODE_MOMENTS, Policy
from policies.twin.cluster import Cluster, Node
from tests.policies.twin.scenario import Scenario


def vary_routers(rng: Generator, scenario: Scenario) -> Scenario:
    """The scenario with rules of this part drawn anew."""
    scenario = replace(scenario, policy=late(rng, scenario.policy), cluster=seen(rng, scenario.cluster))
    if rng.random() < 0.2:
        scenario = replace(scenario, cluster=partly_compatible(rng, scenario.cluster))
    return scenario


def late(rng: Generator, policy: Policy) -> Policy:
    """Another moment, draws, a band and two more terms."""
    extra = [tuple(float(w) for w in rng.choice([0.0, 0.5, 5.0], 2)) for _ in policy.classes]
    return replace(
        policy,
        classes=tuple(replace(c, weights=c.weights[:7] + w) for c, w in zip(policy.classes, extra, strict=True)),
        decode_moment=DECODE_MOMENTS[rng.integers(0, 4)] if rng.random() < 0.7 else "arrival",
        draws_p=int(rng.choice([0, 0, 1, 2, 3])),
        draws_d=int(rng.choice([0, 0, 1, 2, 3])),
        hysteresis_s=float(rng.choice([0.0, 0.01, 1.0])),
        dwell_s=float(rng.choice([0.0, 0.02, 0.2])),
        half_life_s=float(rng.choice([0.0, 0.0, 0.1])),
        lease_s=float(rng.choice([0.02, 0.1])) if rng.random() < 0.3 else None,
    )


def seen(rng: Generator, cluster: Cluster) -> Cluster:
    """Samples that are lost, or brought up to now."""
    routers = replace(
        cluster.routers,
        loss_frac=float(rng.choice([0.0, 0.0, 0.3, 0.9])),
        correct_age=bool(rng.random() < 0.4),
    )
    return replace(cluster, routers=routers)


def partly_compatible(rng: Generator, cluster: Cluster) -> Cluster:
    """Some nodes serve one class alone."""

    def some(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(
            replace(n, classes=(str(rng.choice(["chat", "batch"])),) if rng.random() < 0.4 else ()) for n in nodes
        )

    return replace(cluster, prefill=some(cluster.prefill), decode=some(cluster.decode))
