"""What a second worker of the search brings: replays of the same workloads by one process and by two."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.replay import mooncake
from policies.objective import ClassTarget, Goal
from policies.search.cases import Case
from policies.search.replay import ReplayFactory, save_workloads
from policies.search.workers import WorkerPool
from policies.twin.workload import Workload

TASKS, REPEATS = 24, 5
SPEEDUP_MIN = 1.8


def speedup(trace: Workload, folder: Path) -> dict[str, float]:
    """Wall seconds of the same replays by one spawned worker and by two, in turn; medians, the ratio's over rounds."""
    save_workloads(folder, {"trace": trace})
    goal = Goal((ClassTarget("default", 2.0, 0.03),))
    factory = ReplayFactory(folder, mooncake.pool(4, 4), mooncake.LAWS, goal, seed=1)
    policies = [replace(mooncake.policy(), horizon_s=30.0 + k) for k in range(TASKS)]
    with WorkerPool(factory, 1) as one, WorkerPool(factory, 2) as two:
        for pool in (one, two):
            list(pool.by_policy(policies[:4], [Case("trace")]))
        rounds = [(_wall(one, policies), _wall(two, policies)) for _ in range(REPEATS)]
    one_s, two_s = (statistics.median(took) for took in zip(*rounds, strict=True))
    return {
        "one_s": one_s,
        "two_s": two_s,
        "speedup": statistics.median(alone / both for alone, both in rounds),
        "busy_cores": os.getloadavg()[0],
    }


def _wall(pool: WorkerPool, policies: list[object]) -> float:
    began = time.perf_counter()
    list(pool.by_policy(policies, [Case("trace")]))  # type: ignore[arg-type]
    return time.perf_counter() - began
