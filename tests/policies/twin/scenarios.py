"""Small random pools and workloads, made so that the rare things happen often: see `SCENARIOS` and `build`.

A scenario is a function of its number alone.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np
from numpy.random import Generator

from models.portable.cache import CacheLaw
from models.portable.estimators import Estimators, RiskSigma
from models.portable.length import INPUTS, LengthLaw
from models.portable.steps import StepLaw, StepLaws, one_type
from models.portable.transfer import TransferLaw, egress, ingress, uplink
from models.portable.trees import Trees
from policies.families.registry import FAMILIES
from policies.policy import ClassPolicy, Policy
from policies.twin.cluster import Cluster, Discipline, Node, RouterSetup, Uplink
from policies.twin.outcomes import Noise
from policies.twin.workload import NAMED, NUMBERS, Arrivals, Workload
from tests.policies.families.rows import random_row
from tests.policies.twin.scenario import Scenario
from tests.policies.twin.vary_decode import vary_decode
from tests.policies.twin.vary_faults import vary_faults
from tests.policies.twin.vary_links import vary_links
from tests.policies.twin.vary_prefill import vary_prefill
from tests.policies.twin.vary_routers import vary_routers

SCENARIOS = 240
NS = 1_000_000_000
MS = 1_000_000


VARY = (vary_prefill, vary_decode, vary_links, vary_routers, vary_faults)
"""Each draws from numbers of its own, so that a new rule in one part leaves the others' scenarios as they were."""


@cache
def build(number: int) -> Scenario:
    """Scenario `number`; family, release and kind of view turn with it, so that every mix of them is met.

    A third have all their times on a grid of 1 ms, so that different things happen at the same instant.
    """
    rng = np.random.default_rng(number)
    turn = number // len(FAMILIES)
    cluster = make_cluster(rng, release="activation" if turn % 2 else "transfer", live=turn // 2 % 3 == 0)
    laws = make_laws(rng, cluster)
    workload = make_workload(rng, cluster)
    n = workload.requests
    believed = workload.output_tokens * rng.choice([0.5, 1.0, 1.5], n)
    # Numbers of their own: what goes by the scenario's number goes with its family.
    fixed, grid = np.random.default_rng([number, 0]).random(2) < (1 / 4, 1 / 3)  # not fixed: the length law estimates
    scenario = Scenario(
        cluster=cluster,
        laws=laws,
        decision_laws=make_laws(rng, cluster) if rng.random() < 0.5 else None,
        policy=make_policy(rng, FAMILIES[number % len(FAMILIES)]),
        workload=workload,
        seed=int(rng.integers(0, 2**62)),
        estimated_output=np.ceil(believed * 1.3).astype(np.int32) if fixed else None,
        expected_output=believed.astype(np.int32) if fixed else None,
        noise=make_noise(rng) if rng.random() < 0.5 else None,
    )
    for part, vary in enumerate(VARY, start=1):
        scenario = vary(np.random.default_rng([number, part]), scenario)
    return on_grid(scenario) if grid else scenario


def on_grid(scenario: Scenario) -> Scenario:
    """The scenario with steps of whole ms, and a lone transfer of whole ms for every ten tokens."""

    def nodes(old: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(replace(node, port_gbps=0.08) for node in old)

    cluster = replace(
        scenario.cluster,
        prefill=nodes(scenario.cluster.prefill),
        decode=nodes(scenario.cluster.decode),
        kv_bytes_per_token=1_000,
    )
    if cluster.routers.period_ns > 0:
        routers = replace(cluster.routers, period_ns=12_000_000, delay_ns=2_000_000, lease_ns=40_000_000)
        cluster = replace(cluster, routers=routers)
    laws = replace(
        scenario.laws,
        prefill=one_type(StepLaw(coef=(2e-3, 0.0, 0.0, 0.0, 0.0))),
        decode=one_type(StepLaw(coef=(1e-3, 0.0, 0.0, 0.0))),
        transfer=TransferLaw(alpha_s={"local": 0.0, "cross": 1e-3}, efficiency={"local": 1.0, "cross": 1.0}),
    )
    load = scenario.workload
    load = replace(load, arrival_ns=load.arrival_ns // MS * MS)
    return replace(scenario, cluster=cluster, laws=laws, workload=load, noise=None)


def make_cluster(rng: Generator, *, release: Literal["transfer", "activation"], live: bool) -> Cluster:
    """2-4 P, 2-4 D in 1-3 racks; some rack pairs have an uplink, some do not."""
    racks = [f"rack-{i}" for i in range(rng.integers(1, 4))]
    prefill = [
        Node(f"p-{i}", str(rng.choice(racks)), int(rng.integers(26, 60)), float(rng.choice([0.1, 0.25, 1.0])))
        for i in range(rng.integers(2, 5))
    ]
    decode = [
        Node(f"d-{i}", str(rng.choice(racks)), decode_blocks(rng), float(rng.choice([0.1, 0.3, 1.0])))
        for i in range(rng.integers(2, 5))
    ]
    served = sorted({node.rack for node in (*prefill, *decode)})
    pairs = [(a, b) for a in served for b in served if a != b]
    uplinks = [Uplink(a, b, float(rng.choice([0.05, 0.1, 0.4]))) for a, b in pairs if rng.random() < 0.8]
    period_ns = int(rng.choice([7_000_001, 50_000_000, 200_000_000]))
    return Cluster(
        prefill=tuple(prefill),
        decode=tuple(decode),
        uplinks=tuple(uplinks),
        block_tokens=16,
        kv_bytes_per_token=int(rng.integers(500, 4_000)),
        discipline=Discipline(
            chunk_tokens=int(rng.choice([64, 100, 128, 256])),
            prefill_max_seqs=int(rng.choice([1, 2, 4, 256])),
            decode_max_seqs=int(rng.choice([2, 3, 6, 256])),
            reservations_per_boundary=int(rng.choice([0, 1, 2])),
            release=release,
        ),
        routers=RouterSetup(
            count=int(rng.integers(1, 4)),
            period_ns=0 if live else period_ns,
            delay_ns=int(rng.choice([0, 1_000_000, 60_000_000])),
            lease_ns=int(rng.choice([20_000_000, 100_000_000, 60 * NS])),
        ),
    )


def decode_blocks(rng: Generator) -> int:
    """A D that some outputs outgrow, or a large one."""
    return int(rng.integers(28, 50)) if rng.random() < 0.75 else 90


def make_laws(rng: Generator, cluster: Cluster) -> Estimators:
    """Steps of some ms on nodes of up to two types, with bends, trees and node factors; slow ports; small caches."""
    prefill = StepLaws(
        {kind: prefill_law(rng) for kind in ("*", "old")}, *types_and_factors(rng, cluster.prefill + cluster.decode)
    )
    decode = StepLaws({kind: decode_law(rng) for kind in ("*", "old")}, *types_and_factors(rng, cluster.decode))
    ports = [egress(n.name) for n in cluster.prefill] + [ingress(n.name) for n in cluster.decode]
    ports += [uplink(u.from_rack, u.to_rack) for u in cluster.uplinks]
    transfer = TransferLaw(
        alpha_s={"local": float(rng.choice([0.0, 2e-4])), "cross": float(rng.choice([0.0, 1e-3]))},
        efficiency={"local": float(rng.uniform(0.7, 1.0)), "cross": float(rng.uniform(0.6, 1.0))},
        descriptor_s=float(rng.choice([0.0, 1e-5])),
        descriptors_per_block=float(rng.choice([0.0, 2.0])),
        wire_frac=float(rng.choice([1.0, 0.6])),
        port_factor={port: float(rng.uniform(0.6, 1.1)) for port in ports if rng.random() < 0.3},
    )
    caches = {n.name: CacheLaw(float(rng.uniform(0, 40))) for n in cluster.prefill if rng.random() < 0.3}
    return Estimators(make_lengths(rng), prefill, decode, transfer, RiskSigma(), caches)


def types_and_factors(rng: Generator, nodes: tuple[Node, ...]) -> tuple[dict[str, str], dict[str, float]]:
    """Types of some nodes, one of them without a law of its own, and factors of some."""
    types = {node.name: str(rng.choice(["old", "new"])) for node in nodes if rng.random() < 0.5}
    return types, {node.name: float(rng.uniform(0.8, 1.5)) for node in nodes if rng.random() < 0.7}


def prefill_law(rng: Generator) -> StepLaw:
    return StepLaw(
        coef=(
            2e-3 * rng.random(),
            1e-4 * rng.uniform(0.5, 2),
            1e-8 * rng.random(),
            1e-8 * rng.random(),
            1e-3 * rng.random(),
        ),
        bends=tuple((float(at), 2e-5 * rng.random()) for at in rng.choice([24, 64, 90], rng.integers(0, 3))),
        trees=make_trees(rng, [(20, 120), (0, 20_000), (1, 4)]),
    )


def decode_law(rng: Generator) -> StepLaw:
    return StepLaw(
        coef=(3e-3 * rng.uniform(0.3, 1), 2e-4 * rng.random(), 1e-6 * rng.random(), -1e-10 * rng.random()),
        bends=tuple((float(at), 1e-4 * rng.random()) for at in rng.choice([2, 3, 5], rng.integers(0, 3))),
        trees=make_trees(rng, [(1, 6), (50, 900)]),
        token_cap=None if rng.random() < 0.5 else 400.0,
    )


def make_trees(rng: Generator, ranges: list[tuple[float, float]]) -> Trees:
    """Up to two trees of up to 15 leaves over inputs of these ranges; leaves around 1."""
    nodes: list[tuple[int, float, int, int, float]] = []

    def grow(depth: int) -> int:
        at = len(nodes)
        nodes.append((-1, 0.0, 0, 0, float(rng.uniform(0.9, 1.2))))
        if depth and rng.random() < 0.8:
            feature = int(rng.integers(len(ranges)))
            split = float(np.floor(rng.uniform(*ranges[feature])))
            nodes[at] = (feature, split, grow(depth - 1), grow(depth - 1), 0.0)
        return at

    roots = tuple(grow(4) for _ in range(rng.integers(0, 3)))
    return Trees(roots, *zip(*nodes, strict=True)) if nodes else Trees()


def make_lengths(rng: Generator) -> LengthLaw:
    """Three levels, some groups and parts of them by prompt, a table over several inputs, and paces that move much."""
    known = [(0, 6), (0, 6), (0, 1), (3, 7), (0, 4), (1, 6), (1, 6), (0, 24), (1, 6), (1, 6), (-1, 1), (-1, 1)]
    trees = make_trees(rng, known)
    while len(trees.roots) != 1:
        trees = make_trees(rng, known)
    leaves = [at for at, feature in enumerate(trees.feature) if feature < 0]
    value = [float(leaves.index(at)) if at in leaves else 0.0 for at in range(len(trees.feature))]
    groups = ("*", "chat", "chat|1", "chat/bot", "chat/bot|0", "batch/sum")
    assert len(known) == len(INPUTS)
    return LengthLaw(
        levels=(0.5, 0.75, 0.9),
        group_level={group: float(rng.uniform(1, 5)) for group in groups},
        table=replace(trees, value=tuple(value)),
        rows=tuple(tuple(float(x) for x in rng.uniform(1, 120, 3)) for _ in leaves),
        offset={group: tuple(float(x) for x in rng.uniform(0.5, 1.5, 3)) for group in groups},
        pace={group: tuple(float(x) for x in rng.uniform(0, 0.5, 3)) for group in groups},
        limit_tokens=None if rng.random() < 0.5 else 150.0,
        tenant_effect={"tenant": 0.5, "other": -0.5},
        model_effect={"model": 0.7},
        prompt_edges=(100.0, 200.0),
    )


def make_policy(rng: Generator, family: str) -> Policy:
    """Two classes with random weights, some of them 0."""

    def slo_class(name: str) -> ClassPolicy:
        weights = tuple(float(w) for w in rng.choice([0.0, 0.5, 1.0, 2.0], 7))
        return ClassPolicy(
            name=name,
            ttft_target_s=None if rng.random() < 0.3 else float(rng.uniform(0.02, 0.5)),
            tpot_target_s=None if rng.random() < 0.3 else float(rng.uniform(0.002, 0.01)),
            weights=weights,  # type: ignore[arg-type]
            quantile=float(rng.choice([0.5, 0.75, 0.9])),
            reserve_blocks=float(rng.choice([0.0, 0.0, 4.0])),
        )

    return Policy(
        family=family,
        params=random_row(random.Random(int(rng.integers(2**32))), family),
        classes=(slo_class("chat"), slo_class("batch")),
        high_water=float(rng.uniform(0.3, 0.9)),
        horizon_s=float(rng.choice([0.0, 0.05, 30.0])),
        wait_cap_s=float(rng.choice([0.2, 30.0])),
        release_floor=float(rng.choice([0.5, 5.0])),
        unknown=str(rng.choice(["worst", "exclude"])),  # type: ignore[arg-type]
        when_full="reject" if rng.random() < 0.2 else "queue",
        same_rack=str(rng.choice(["none", "prefill_first", "decode_first"])),  # type: ignore[arg-type]
        temperature_p_s=float(rng.choice([0.0, 0.01])),
        temperature_d_s=float(rng.choice([0.0, 0.01])),
    )


def make_noise(rng: Generator) -> Noise:
    """Log-normal multipliers."""
    return Noise(*(np.exp(rng.normal(0.0, sigma, 4_096)) for sigma in (0.1, 0.15, 0.2)))


def make_workload(rng: Generator, cluster: Cluster) -> Workload:
    """30-120 requests in bursts, several at one instant, with prefixes that groups of them share."""
    n = int(rng.integers(30, 121))
    block = cluster.block_tokens
    gaps_ns = (rng.exponential(float(rng.choice([4e6, 10e6, 25e6])), n)).astype(np.int64)
    gaps_ns[rng.random(n) < 0.2] = 0
    prompt = np.clip(rng.lognormal(4.8, 0.6, n), 1, 420).astype(np.int32)
    if rng.random() < 0.15:
        prompt[rng.integers(n)] = 2_000  # fits no P
    output = np.clip(rng.lognormal(3.2, 0.8, n), 0, 300).astype(np.int32)
    if rng.random() < 0.4:
        output[rng.integers(n, size=3)] = 700  # fits some D, or none
    forced = rng.random(n) < rng.choice([0.0, 0.0, 0.0, 0.3, 1.0])
    prompt = np.where(rng.random(n) < 0.5, prompt, np.maximum(prompt // 10, 1) * 10).astype(np.int32)
    block_ids, block_offset = make_blocks(rng, prompt // block)
    return Workload(
        arrival_ns=np.cumsum(gaps_ns),
        prompt_tokens=prompt,
        output_tokens=output,
        class_index=rng.integers(0, 2, n).astype(np.int32),
        block_offset=block_offset,
        block_ids=block_ids,
        forced_prefill=np.where(forced, rng.integers(0, len(cluster.prefill), n), -1).astype(np.int32),
        forced_decode=np.where(forced, rng.integers(0, len(cluster.decode), n), -1).astype(np.int32),
        scored=np.ones(n, np.bool_),
        arrivals=make_arrivals(rng, n) if rng.random() < 0.7 else None,
    )


def make_arrivals(rng: Generator, n: int) -> Arrivals:
    """Some apps with and without a group of their own, and numbers of which some are unknown."""
    top = {"cached_frac": 1.0, "max_output_tokens": 200.0, "turn": 5.0, "hour": 24.0}
    numbers = np.stack([rng.uniform(0, top.get(name, 150.0), n) for name in NUMBERS], axis=1)
    for name in ("max_output_tokens", "turn"):
        numbers[:, NUMBERS.index(name)] = np.ceil(numbers[:, NUMBERS.index(name)])
    numbers[rng.random(numbers.shape) < 0.3] = np.nan
    names = np.array(["bot", "other", "sum", "tenant", "model"])
    return Arrivals(names, rng.integers(-1, len(names), (n, len(NAMED))).astype(np.int32), numbers, rng.random(n) < 0.8)


def make_blocks(rng: Generator, full_blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dense ids: a request takes the first blocks of its group's chain, then blocks of its own, then perhaps none."""
    chain_blocks = 24
    groups = int(rng.integers(1, 5))
    next_id = groups * chain_blocks
    ids: list[int] = []
    offset = [0]
    for full in full_blocks:
        listed = int(full) if rng.random() < 0.8 else int(rng.integers(0, full + 1))
        group = int(rng.integers(groups))
        common = min(listed, int(rng.integers(0, chain_blocks + 1)))
        own = listed - common
        ids += range(group * chain_blocks, group * chain_blocks + common)
        ids += range(next_id, next_id + own)
        next_id += own
        offset.append(len(ids))
    _, dense = np.unique(np.array(ids, np.int64), return_inverse=True)
    return dense.astype(np.int32), np.array(offset, np.int64)
