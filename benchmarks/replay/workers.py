"""What a second worker of the search brings: replays of the same workloads by one process and by two."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.replay import mooncake
from policies.objective import ClassTarget, Goal
from policies.search_cases import Case
from policies.search_replay import ReplayFactory, save_workloads
from policies.search_workers import WorkerPool
from policies.twin.workload import Workload

TASKS, REPEATS = 24, 3
SPEEDUP_MIN = 1.8


def speedup(trace: Workload, folder: Path) -> dict[str, float]:
    """Wall seconds of the same replays by one spawned worker and by two, the best of the repeats each."""
    save_workloads(folder, {"trace": trace})
    goal = Goal((ClassTarget("default", 2.0, 0.03),))
    factory = ReplayFactory(folder, mooncake.pool(4, 4), mooncake.LAWS, goal, seed=1)
    policies = [replace(mooncake.policy(), horizon_s=30.0 + k) for k in range(TASKS)]
    took = {}
    for workers in (1, 2):
        with WorkerPool(factory, workers) as pool:
            list(pool.by_policy(policies[: 2 * workers], [Case("trace")]))
            took[workers] = min(_wall(pool, policies) for _ in range(REPEATS))
    return {"one_s": took[1], "two_s": took[2], "speedup": took[1] / took[2], "busy_cores": os.getloadavg()[0]}


def _wall(pool: WorkerPool, policies: list[object]) -> float:
    began = time.perf_counter()
    list(pool.by_policy(policies, [Case("trace")]))  # type: ignore[arg-type]
    return time.perf_counter() - began
