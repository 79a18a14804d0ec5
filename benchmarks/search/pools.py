"""The pools that learning is judged on: clusters, SLO classes, targets; most on the Mooncake conversation trace.

Laws are the public constants of NVIDIA Dynamo's offline replay, which routers know, node speeds too. Only what stands
here differs from pool to pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from benchmarks.replay.mooncake import LAWS
from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, one_type
from policies.objective import ClassTarget, Goal
from policies.policy import DECODE_MOMENTS, ClassPolicy, Policy, default_policy
from policies.search.space import Freedom
from policies.twin.cluster import Cluster, Discipline, Node, RouterSetup, Uplink
from policies.twin.workload import Int32

BLOCK, P_BLOCKS, D_BLOCKS, KV_BYTES, PORT_GBPS = 512, 2048, 1536, 163_840, 200.0
SLOW = 1.3
"""Step time of a slow node over that of the others."""


@dataclass(frozen=True, slots=True)
class Size:
    """Prompts below so many tokens (and not in a class before it) are a class with these targets."""

    name: str
    below: int
    ttft_s: float
    tpot_s: float


ALIKE = (
    Size("short", 4_096, 1.1, 0.027),
    Size("middle", 16_384, 1.6, 0.027),
    Size("long", 49_152, 3.5, 0.027),
    Size("longest", 1 << 30, 12.0, 0.027),
)
ONE = (Size("any", 1 << 30, 4.0, 0.027),)
TURNS = (
    Size("to 64k", 65_536, 3.0, 0.027),
    Size("to 128k", 131_072, 5.5, 0.027),
    Size("to 256k", 262_144, 8.5, 0.027),
    Size("longer", 1 << 30, 19.0, 0.027),
)
"""Turns of agents: 1 s and twice what an idle pool takes for the class's mean prompt without a cache."""
MIXED = (
    Size("short", 4_096, 0.5, 0.020),
    Size("middle", 16_384, 1.6, 0.026),
    Size("long", 49_152, 6.0, 0.045),
    Size("longest", 1 << 30, 15.0, 0.045),
)


@dataclass(frozen=True, slots=True)
class Pool:
    """`racks`: P and D nodes of each. `uplink_gbps` each way, None = no limit. `slow`: nodes with `SLOW` step times.

    `traffic`: which requests it serves. `copies` of a trace make them, with prefixes of their own: at a lower rate
    each, so that the traffic lasts.
    """

    name: str
    what: str
    racks: tuple[tuple[int, int], ...] = ((4, 4),)
    uplink_gbps: float | None = None
    slow: tuple[str, ...] = ()
    routers: RouterSetup = field(default_factory=RouterSetup)
    sizes: tuple[Size, ...] = ALIKE
    copies: int = 1
    traffic: str = "mooncake"
    p_blocks: int = P_BLOCKS
    d_blocks: int = D_BLOCKS
    port_gbps: float = PORT_GBPS

    @property
    def cluster(self) -> Cluster:
        """The nodes, named p0, p1, … and d0, d1, … from rack to rack."""
        racks = [chr(ord("a") + k) for k in range(len(self.racks))]
        of_p = [rack for rack, (p, _) in zip(racks, self.racks, strict=True) for _ in range(p)]
        of_d = [rack for rack, (_, d) in zip(racks, self.racks, strict=True) for _ in range(d)]
        links = [(a, b) for a in racks for b in racks if a != b] if self.uplink_gbps else []
        return Cluster(
            tuple(Node(f"p{k}", rack, self.p_blocks, self.port_gbps) for k, rack in enumerate(of_p)),
            tuple(Node(f"d{k}", rack, self.d_blocks, self.port_gbps) for k, rack in enumerate(of_d)),
            tuple(Uplink(a, b, self.uplink_gbps or 0.0) for a, b in links),
            BLOCK,
            KV_BYTES,
            Discipline(reservations_per_boundary=1, release="activation"),
            self.routers,
        )

    @property
    def laws(self) -> Estimators:
        """True and believed alike."""
        factors = dict.fromkeys(self.slow, SLOW)
        tokens = float(BLOCK * self.d_blocks)
        decode = StepLaw((5.74e-3, 0.0, 54.01e-3 / tokens, -25.74e-3 / tokens / tokens), token_cap=tokens)
        return replace(LAWS, prefill=replace(LAWS.prefill, node_factor=factors), decode=one_type(decode, factors))

    @property
    def goal(self) -> Goal:
        """Goodput over the classes."""
        return Goal(tuple(ClassTarget(s.name, s.ttft_s, s.tpot_s) for s in self.sizes))

    @property
    def default(self) -> Policy:
        """What an untuned router does."""
        classes = [ClassPolicy(s.name, ttft_target_s=s.ttft_s, tpot_target_s=s.tpot_s) for s in self.sizes]
        return default_policy(classes)

    @property
    def freedom(self) -> Freedom:
        """What its routers can be told."""
        nodes = self.cluster
        setup = self.routers
        return Freedom(DECODE_MOMENTS, len(nodes.prefill), len(nodes.decode), setup.period_ns > 0, setup.lease_ns / 1e9)

    def class_of(self, prompt_tokens: Int32) -> Int32:
        """Class of every prompt."""
        return np.searchsorted([s.below for s in self.sizes], prompt_tokens, side="right").astype(np.int32)


def _stale(count: int, period_ms: int) -> RouterSetup:
    period = period_ms * 1_000_000
    return RouterSetup(count, period, 0, cache_period_ns=period, correct_age=True)


_UNEVEN = ((5, 3), (3, 5))
POOLS: Mapping[str, Pool] = MappingProxyType(
    {
        pool.name: pool
        for pool in (
            Pool("a", "4 P + 4 D and requests all alike, one router that sees the live state", sizes=ONE, copies=2),
            Pool("c100", "two uneven racks, 100 Gb/s between them", racks=_UNEVEN, uplink_gbps=100.0, copies=3),
            Pool(
                "f",
                "two uneven racks, 25 Gb/s between them, slow nodes, four routers with samples of 500 ms",
                racks=_UNEVEN,
                uplink_gbps=25.0,
                slow=("p0", "p5", "d0", "d4"),
                routers=_stale(4, 500),
                copies=3,
            ),
            Pool("g", "4 P + 4 D, TPOT targets of 20, 26 and 45 ms by prompt size", sizes=MIXED, copies=2),
            Pool(
                "s",
                "5 P + 3 D of large memory, two routers with samples of 500 ms, agents in closed loop",
                racks=((5, 3),),
                routers=_stale(2, 500),
                sizes=TURNS,
                traffic="agents",
                # Nodes of eight GPUs for long prompts: half of what P holds is in host memory.
                p_blocks=16_384,
                d_blocks=8_192,
                port_gbps=1_600.0,
            ),
            Pool(
                "h", "8 P + 8 D, eight routers with samples of 2 s", racks=((8, 8),), routers=_stale(8, 2000), copies=3
            ),
        )
    }
)
