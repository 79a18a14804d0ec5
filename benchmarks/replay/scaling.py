"""How time and memory grow: `python -m benchmarks.replay.scaling FOLDER N SMALLEST` replays N requests of a folder.

The trace is memory-mapped, so the process's private memory is what the replay takes beyond it.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.replay import mooncake
from benchmarks.replay.timing import Seconds, child, replayer, seconds
from policies.store_workloads import load_workload, save_workload
from policies.twin.workload import Workload

REQUESTS = (10_000, 100_000, 1_000_000)
MANY = 10_000_000
NODES = (4, 8, 16, 32, 64)
LINEAR_WITHIN, BYTES_MAX = 0.15, 200
ROUNDS = 3
SHORTEST = 500_000
"""Requests that a size replays at least, one time after the other."""


def by_requests(trace: Workload, sizes: tuple[int, ...], folder: Path) -> list[dict[str, Any]]:
    """Microseconds and private bytes a request, by size, each in a process of its own; medians of the rounds.

    `to_smallest`: its time over that of the smallest size, replayed again and again on the same core meanwhile, so that
    both meet the same machine.
    """
    for n in sizes:
        save_workload(folder / str(n), mooncake.copies(trace, n))
    smallest = str(min(sizes))
    ran = [[child("benchmarks.replay.scaling", str(folder), str(n), smallest) for n in sizes] for _ in range(ROUNDS)]
    return [
        {
            "requests": n,
            "us_per_request": statistics.median(run.value["s"] for run in runs) / n * 1e6,
            "to_smallest": statistics.median(run.value["s"] / n / run.value["smallest_s"] for run in runs) * min(sizes),
            "bytes_per_request": max(0, *(run.peak_private_bytes - run.value["before_bytes"] for run in runs)) / n,
        }
        for n, runs in zip(sizes, zip(*ran, strict=True), strict=True)
    ]


def by_candidates(trace: Workload) -> list[dict[str, Any]]:
    """Microseconds a request and nanoseconds a scored pair, by P = D, at the same load a node."""
    rows = []
    for nodes in NODES:
        call = replayer(mooncake.faster(trace, nodes / 4), nodes, nodes)
        call()
        took: Seconds = seconds(call, 3)
        each = took.median / trace.requests
        rows.append({"nodes": nodes, "us_per_request": each * 1e6, "ns_per_pair": each / nodes**2 * 1e9})
    return rows


def _private() -> int:
    status = Path("/proc/self/status").read_text("ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon:"))


def _load(folder: str, requests: str) -> Workload:
    replayer(mooncake.copies(mooncake.read_trace(), 1_000), 4, 4)()
    trace = load_workload(Path(folder) / requests)
    assert trace is not None, "it was saved by the parent"
    return trace


def _timed(trace: Workload) -> float:
    call = replayer(trace, 4, 4)
    began = time.process_time()
    call()
    return time.process_time() - began


def _main(folder: str, requests: str, smallest: str) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    trace = _load(folder, requests)
    command = [sys.executable, "-m", "benchmarks.replay.scaling", folder, smallest]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as beside:
        assert beside.stdin is not None
        assert beside.stdout is not None
        beside.stdout.readline()
        before = _private()
        times = [_timed(trace) for _ in range(max(1, SHORTEST // trace.requests))]
        beside.stdin.close()
        smallest_s = json.loads(beside.stdout.read())
    found = {"s": statistics.median(times), "before_bytes": before, "smallest_s": smallest_s}
    sys.stdout.write(json.dumps(found) + "\n")


def _beside(folder: str, requests: str) -> None:
    """Replay until stdin ends, then print the median of the times."""
    trace = _load(folder, requests)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    times = [_timed(trace)]
    while not select.select([sys.stdin], [], [], 0)[0]:
        times.append(_timed(trace))
    sys.stdout.write(json.dumps(statistics.median(times)) + "\n")


if __name__ == "__main__":
    (_main if len(sys.argv) == 4 else _beside)(*sys.argv[1:])
