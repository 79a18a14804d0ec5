"""How time and memory grow: `python -m benchmarks.replay.scaling FOLDER N` replays N requests kept in a folder.

The trace is memory-mapped, so the process's private memory is what the replay takes beyond it.
"""

from __future__ import annotations

import json
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


def by_requests(trace: Workload, sizes: tuple[int, ...], folder: Path) -> list[dict[str, Any]]:
    """Microseconds and private bytes a request, by size, each in a process of its own; the fastest of the rounds."""
    for n in sizes:
        save_workload(folder / str(n), mooncake.copies(trace, n))
    ran = [[child("benchmarks.replay.scaling", str(folder), str(n)) for n in sizes] for _ in range(ROUNDS)]
    return [
        {
            "requests": n,
            "us_per_request": min(run.value["s"] for run in runs) / n * 1e6,
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


def _main(folder: str, requests: str) -> None:
    replayer(mooncake.copies(mooncake.read_trace(), 1_000), 4, 4)()
    trace = load_workload(Path(folder) / requests)
    assert trace is not None, "it was saved by the parent"
    before = _private()
    repeats = 5 if trace.requests < 50_000 else 1
    times = []
    for _ in range(repeats):
        call = replayer(trace, 4, 4)
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    sys.stdout.write(json.dumps({"s": sorted(times)[repeats // 2], "before_bytes": before}) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
