"""How long a search takes, what a second worker brings, and that a killed search ends as an unbroken one."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.replay import mooncake
from benchmarks.search.contest import LEVELS, SEED
from benchmarks.search.pools import POOLS, Pool
from benchmarks.search.traffic import Trace, test_days
from policies.search.cases import Case
from policies.search.identify import frozen_knobs
from policies.search.race import racer
from policies.search.replay import ReplayFactory, save_workloads
from policies.search.search import Budget, SearchResult, search
from policies.search.space import Space, space_around
from policies.search.workers import WorkerPool
from policies.twin.workload import Workload

TRIALS, LOAD, KILLS = 300, 3.4, 5


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of a search: `wall_s` as a user waits, workers' start included; `under_way_s` from its first batch's
    end on.
    """

    wall_s: float
    under_way_s: float
    result: SearchResult


def speed(trace: Workload) -> dict[str, float]:
    """`TRIALS` trials on the whole trace by one worker and by two, in turn.

    To start two takes some seconds, which count for the wall time and not for what the second one brings.
    """
    pool = replace(POOLS["a"], copies=1)
    with tempfile.TemporaryDirectory() as folder:
        _prepare(pool, trace, Path(folder))
        two, one = (_timed(pool, trace, Path(folder), workers) for workers in (2, 1))
    assert one.result == two.result, "the number of workers changes nothing"
    return {
        "trials_wall_s": two.wall_s,
        "one_worker_wall_s": one.wall_s,
        "speedup": one.under_way_s / two.under_way_s,
        "speedup_with_start": one.wall_s / two.wall_s,
    }


def killed(trace: Workload) -> dict[str, float | bool]:
    """A search in a process that is killed `KILLS` times, against one that is not."""
    pool = replace(POOLS["a"], copies=1)
    with tempfile.TemporaryDirectory() as folder:
        _prepare(pool, trace, Path(folder))
        whole = _search(pool, trace, Path(folder), 1, _short(), None)
        journal = Path(folder).parent / f"{Path(folder).name}.jsonl"
        kept = [2 * (kill + 1) for kill in range(KILLS)]  # batches of the journal when it is killed
        kills = 0
        command = [sys.executable, "-m", "benchmarks.search.speed", folder, str(journal)]
        for kills in itertools.count():
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                for done, _ in enumerate(process.stdout, start=1):
                    if kills < KILLS and done == kept[kills]:
                        process.send_signal(signal.SIGKILL)
                        break
            if process.returncode == 0:
                break
        broken = _search(pool, trace, Path(folder), 1, _short(), journal)
        journal.unlink()
    return {"kills": float(kills), "same_winner": broken.chosen == whole.chosen, "same_trials": broken == whole}


def _short() -> Budget:
    return Budget(trials=64, batch=4, patience=99)


def _prepare(pool: Pool, trace: Workload, folder: Path) -> None:
    save_workloads(folder, {"day": next(iter(test_days(pool, Trace(trace), LOAD).values()))})


def _space(pool: Pool, trace: Workload) -> Space:
    frozen = frozen_knobs(pool.cluster, pool.laws, pool.goal, [trace])
    return space_around(pool.default, frozen, LEVELS, pool.freedom)


def _timed(pool: Pool, trace: Workload, folder: Path, workers: int) -> Took:
    began = time.perf_counter()
    batches: list[float] = []

    def done() -> None:
        batches.append(time.perf_counter())

    budget = Budget(trials=TRIALS, batch=8, patience=TRIALS)
    result = _search(pool, trace, folder, workers, budget, None, done)
    return Took(time.perf_counter() - began, batches[-1] - batches[0], result)


def _search(
    pool: Pool,
    trace: Workload,
    folder: Path,
    workers: int,
    budget: Budget,
    journal: Path | None,
    done: Callable[[], None] = lambda: None,
) -> SearchResult:
    """`done`: after every batch."""
    space = _space(pool, trace)
    factory = ReplayFactory(folder, pool.cluster, pool.laws, pool.goal, SEED)
    with WorkerPool(factory, workers) as replays:
        scorer = racer(replays, space, [Case("day")])
        return search(space, scorer, seed=SEED, budget=budget, journal=journal, progress=lambda *_: done())


def _say() -> None:
    sys.stdout.write("batch\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _search(POOLS["a"], mooncake.read_trace(), Path(sys.argv[1]), 1, _short(), Path(sys.argv[2]), _say)
