"""How the cost of a fit grows: 1, 2 and 5 million rows of each training table, each fit in a process of its own.

Tables are synthetic, of 30 nodes and 3 classes × 8 applications over ten days: enough traffic for ports to be shared,
sessions for histories, noise for trimming. Memory: a process's peak less what it had before it read the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from benchmarks.estimators.bars import Bar, Part, Row
from benchmarks.estimators.tables import MAKERS

MILLIONS = (1.0, 2.0, 5.0)
TOLERANCE = 0.1
"""Of a growth that is linear: what machines and allocators add."""
SEED = 1
MIB = 2**20


def measure(_: Path, millions: tuple[float, ...] = MILLIONS) -> Part:
    """Seconds, seconds of CPU and peak MiB of every fit; growth is judged in CPU, which a busy machine blurs less."""
    rows: list[Row] = []
    bars: list[Bar] = []
    with TemporaryDirectory() as folder:
        for table in MAKERS:
            cost = [_cost(Path(folder) / f"{table}.parquet", table, int(size * 1e6)) for size in millions]
            for size, figures in zip(millions, cost, strict=True):
                rows.append(Row("synthetic", f"{size:g} million rows", table, figures))
            linear = millions[-1] / millions[0] * (1.0 + TOLERANCE)
            for figure in ("cpu_s", "peak_mib"):
                growth = cost[-1][figure] / cost[0][figure]
                bars.append(
                    Bar(f"{table}: {figure}, growth from {millions[0]:g} to {millions[-1]:g} million", growth, linear)
                )
    return Part("scale", tuple(rows), tuple(bars))


def fits() -> dict[str, Callable[[pl.DataFrame], object]]:
    """Table -> its fit, as a night calls it."""
    from models.length.fit import fit_length
    from models.steps.fit import fit_decode, fit_prefill
    from models.transfer.fit import fit_transfer

    return {
        "lengths": lambda table: fit_length(table, seed=SEED),
        "prefill_steps": fit_prefill,
        "decode_steps": fit_decode,
        "transfers": fit_transfer,
    }


def _cost(path: Path, table: str, rows: int) -> dict[str, float]:
    """Seconds and peak MiB of one fit; table and fit are made in fresh processes."""
    for step in ("make", "fit"):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.estimators.scale", step, table, str(rows), str(path)],
            check=True,
            capture_output=step == "fit",
            text=True,
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _make(table: str, rows: int, path: Path) -> None:
    MAKERS[table](np.random.default_rng([SEED, rows]), rows).write_parquet(path)


def _fit(table: str, path: Path) -> None:
    fit = fits()[table]
    before = _peak_bytes()
    frame = pl.read_parquet(path)
    start, used = time.perf_counter(), time.process_time()
    fit(frame)
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - used
    print(json.dumps({"seconds": seconds, "cpu_s": cpu_s, "peak_mib": (_peak_bytes() - before) / MIB}))


def _peak_bytes() -> int:
    """Peak resident memory of this process. The kernel's count of an address space: what `getrusage` tells is at first
    that of the process which started this one.
    """
    status = Path("/proc/self/status").read_text("ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    _, step, table, rows, path = sys.argv
    if step == "make":
        _make(table, int(rows), Path(path))
    else:
        _fit(table, Path(path))
