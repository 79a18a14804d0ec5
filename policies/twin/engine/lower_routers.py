"""Routers as the arrays that kernels read: ticks, rings of samples, bookings."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from models.portable.estimators import Estimators
from policies.families.registry import shares_blocks
from policies.kernel_types import Float64, Int64
from policies.policy import Policy
from policies.twin.cluster import Cluster, RouterSetup
from policies.twin.engine import columns, parts
from policies.twin.engine.arena import Arena
from policies.twin.engine.columns import NEVER
from policies.twin.engine.lower import DECIDE, kinds
from policies.twin.engine.lower_faults import closed_windows
from policies.twin.engine.samples import SAMPLE_LOSS
from policies.twin.workload import Workload

HANDOFF_MOMENTS = ("handoff", "recheck")
_A, _B, _C = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def router_part(
    memory: Arena,
    cluster: Cluster,
    workload: Workload,
    policy: Policy,
    believed: Estimators,
    running: Int64,
    seed: int,
) -> tuple[Int64, parts.Routers]:
    """The engine's rows of routers, and their part. `running` (D, C): sequences that run, as D nodes keep them.

    Where every decision's time is known, the ticks are those that a decision uses, and each one's tick before it
    (growth and release are over the time between two). Else every tick is taken.
    """
    setup = cluster.routers
    n, prefill, decode = workload.requests, len(cluster.prefill), len(cluster.decode)
    rs = np.zeros((setup.count + 1, columns.ROUTER_COLUMNS), np.int64)
    rs[:, columns.R_LAST_TIME] = -1
    rs[:, columns.R_NEXT_SAMPLE] = NEVER
    sampled = setup.period_ns > 0
    known = workload.parent is None and policy.decode_moment not in HANDOFF_MOMENTS
    every_tick = sampled and (not known or policy.half_life_s > 0 or len(cluster.faults.gaps) > 0)
    decides = kinds(workload, cluster, 0, n) == DECIDE if sampled else np.zeros(n, np.bool_)
    ticks: list[Int64] = []
    first = 0
    for router in range(setup.count):
        phase = router * setup.period_ns // setup.count
        times = np.zeros(0, np.int64)
        if every_tick and decides.any():
            rs[router, columns.R_NEXT_SAMPLE] = phase
        elif decides[router :: setup.count].any():
            mine = workload.arrival_ns[router :: setup.count][decides[router :: setup.count]]
            # usable means strictly before now - delay: the newest tick is the last one at or before now - delay - 1
            k = (mine - setup.delay_ns - 1 - phase) // setup.period_ns
            times = _ticks(k, setup, router, seed) * setup.period_ns + phase
        ticks.append(times)
        rs[router, [columns.R_SAMPLE_DONE, columns.R_SAMPLE_END]] = first, first + len(times)
        if len(times):
            rs[router, columns.R_NEXT_SAMPLE] = times[0]
        first += len(times)
    slots = 1 if not sampled else setup.delay_ns // setup.period_ns + 4
    classes = len(policy.classes)
    counted = int(workload.block_ids.max(initial=-1)) + 1 if shares_blocks(policy) else 0
    return rs, parts.Routers(
        sample_time=np.concatenate(ticks),
        ring_time=np.zeros((setup.count + 1, slots), np.int64),
        ring_p=np.zeros((setup.count + 1, slots, prefill, 6)),
        ring_d=np.zeros((setup.count + 1, slots, decode, 13 + classes)),
        totals=np.zeros((setup.count + 1, decode, 2), np.int64),
        kv_rates=np.full((setup.count + 1, decode, 2), np.nan),
        running=running,
        booked=np.zeros((setup.count, n // setup.count + 1), np.int32),
        last_pair=np.full((setup.count, classes, 3), -1, np.int64),
        open_p=np.array([[int(n.serves(c.name)) for n in cluster.prefill] for c in policy.classes], np.int64),
        open_d=np.array([[int(n.serves(c.name)) for n in cluster.decode] for c in policy.classes], np.int64),
        closed=closed_windows(cluster),
        refusing=np.zeros(prefill + decode, np.int64),
        closed_at_once=int(cluster.faults.seen == "at_once"),
        gaps=np.array([(w.start_ns, w.stop_ns) for w in cluster.faults.gaps], np.int64).reshape(-1, 2),
        pace=_pace(cluster, believed),
        drained=np.zeros(prefill, np.int64),
        predicted=np.full((n, 2), np.nan),
        own_p=np.zeros((setup.count, prefill, 3), np.int64),
        own_d=np.zeros((setup.count, decode, 2), np.int64),
        active=memory.zeros("active", (setup.count, decode, counted), np.int32),
        replicas=setup.count,
        period=setup.period_ns,
        delay=setup.delay_ns,
        lease=setup.lease_ns if policy.lease_s is None else ns_of(policy.lease_s),
        dwell=ns_of(policy.dwell_s),
        every_tick=int(every_tick),
        correct_age=int(setup.correct_age and sampled),
        loss_frac=float(setup.loss_frac),
        half_life_s=float(policy.half_life_s),
        seed=np.uint64(seed),
    )


def ns_of(seconds: float) -> int:
    """Seconds as ns."""
    return math.floor(seconds * 1e9 + 0.5)


def _pace(cluster: Cluster, believed: Estimators) -> Float64:
    """Tokens a second of every P in full steps of one prompt."""
    budget = float(cluster.discipline.chunk_tokens)
    return np.array([budget / believed.prefill.prefill_s(node.name, budget, 0.0) for node in cluster.prefill])


def _ticks(k: Int64, setup: RouterSetup, router: int, seed: int) -> Int64:
    """The ticks of ascending numbers k and each one's tick before it, each once; of lost ones those before them."""
    own = _came(k, setup, router, seed)
    own = own[np.concatenate([[True], own[1:] != own[:-1]])]
    pairs = np.stack([_came(own - 1, setup, router, seed), own], axis=1).reshape(-1)
    kept = pairs >= 0
    kept[1:] &= pairs[1:] != pairs[:-1]
    return pairs[kept]


def _came(k: Int64, setup: RouterSetup, router: int, seed: int) -> Int64:
    """The newest ticks up to k whose samples came."""
    if setup.loss_frac <= 0:
        return k
    k = k.copy()
    late = np.flatnonzero(k >= 0)
    while len(late):
        late = late[_lost(k[late], router, setup.loss_frac, seed)]
        k[late] -= 1
        late = late[k[late] >= 0]
    return k


def _lost(number: Int64, router: int, loss_frac: float, seed: int) -> npt.NDArray[np.bool_]:
    mixed = _mix(np.full(len(number), seed, np.uint64))
    for part in (np.uint64(SAMPLE_LOSS), np.uint64(router), number.astype(np.uint64)):
        mixed = _mix(mixed ^ part)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53 < loss_frac


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = x + _A
    z = (z ^ (z >> np.uint64(30))) * _B
    z = (z ^ (z >> np.uint64(27))) * _C
    return z ^ (z >> np.uint64(31))
