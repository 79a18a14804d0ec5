"""Process time of a call, over repeats, and calls in a fresh process."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replay import mooncake
from policies.twin.engine.arena import Arena
from policies.twin.outcomes import Replay
from policies.twin.replay import replay
from policies.twin.workload import Workload

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Seconds:
    """Process seconds of the repeats: median, fastest, and (slowest - fastest) / median.

    The fastest is nearest to what the machine does when nobody else uses its caches and its other hardware thread.
    """

    median: float
    fastest: float
    spread_frac: float


def seconds(call: Callable[[], object], repeats: int) -> Seconds:
    """Time a call that has been called before."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    middle = statistics.median(times)
    return Seconds(middle, min(times), (max(times) - min(times)) / middle)


def replayer(workload: Workload, prefill: int, decode: int, family: str = "routecal") -> Callable[[], Replay]:
    """A replay of a workload, as a worker of the search does it: memory is kept for the next one."""
    guess = np.full(workload.requests, mooncake.GUESS, np.int32)
    pool, policy, arena = mooncake.pool(prefill, decode), mooncake.policy(family), Arena()
    return lambda: replay(
        pool, mooncake.LAWS, policy, workload, seed=1, estimated_output=guess, expected_output=guess, arena=arena
    )


@dataclass(frozen=True, slots=True)
class Child:
    """What a module printed as JSON, and what its process took."""

    value: Any
    wall_s: float
    cpu_s: float
    peak_private_bytes: int


def child(module: str, *arguments: str, env: Mapping[str, str] | None = None) -> Child:
    """Run a module of this checkout in a process of its own and watch its private memory.

    Pages of mapped files (the trace) are not private.
    """
    began, before = time.perf_counter(), os.times()
    command = [sys.executable, "-m", module, *arguments]
    peak = 0
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE) as process:
        while process.poll() is None:
            peak = max(peak, _private(process.pid))
            time.sleep(0.02)
        assert process.stdout is not None
        out = process.stdout.read()
    if process.returncode:
        raise RuntimeError(f"{module} ended with {process.returncode}")
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Child(json.loads(out) if out.strip() else None, time.perf_counter() - began, cpu_s, peak)


def _private(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return 0
    held = [line.split() for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(held[0][1]) * 1024 if held else 0
