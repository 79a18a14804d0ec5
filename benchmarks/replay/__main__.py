"""Speed of the twin: `python -m benchmarks.replay [--json] [--only PART...] [--many]`.

One run, ratios within it. Cells: the Mooncake conversation trace on 4P + 4D and 8P + 8D, arrivals × 1 and × 4, the
joint score over all pairs, four routers with stale views, shared links, block-exact growth. Beside them NVIDIA Dynamo's
replay of the same trace, every family, growth with requests and candidates, memory, the trace cache, compile time, a
second worker, and the plain reference. Times are process times, medians, and what is compared runs in turn; "fastest"
is the fastest repeat. `--many` replays ten million requests too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.replay import demo_pool, mooncake, scaling, third_party, workers
from benchmarks.replay.timing import child, replayer, seconds
from policies.families.registry import FAMILIES
from policies.store_workloads import load_workload, save_workload
from policies.twin.workload import Workload

REPEATS, ROUNDS = 15, 5
CELLS = ((4, 4, 1), (4, 4, 4), (8, 8, 1), (8, 8, 4))
LEAST = {4: 150_000, 8: 100_000}
DYNAMO_RATIO, FAMILY_RATIO, FIRST_S, LATER_S = 100.0, 0.5, 60.0, 2.0

Found = dict[str, Any]


class Report:
    """Results by name, bars with what they demand, parts that were left out and why."""

    def __init__(self) -> None:
        self.results: Found = {}
        self.bars: list[Found] = []
        self.skipped: list[str] = []

    def bar(self, name: str, value: float, sense: str, bound: float) -> None:
        """One number and the least or most that it may be."""
        met = value >= bound if sense == ">=" else value <= bound
        self.bars.append({"name": name, "value": value, "sense": sense, "bound": bound, "met": bool(met)})


def cells(report: Report, trace: Workload) -> None:
    """Requests/s of every cell."""
    rows: Found = {}
    for prefill, decode, load in CELLS:
        call = replayer(mooncake.faster(trace, load), prefill, decode)
        steps = call().counters.decode_steps
        took = seconds(call, REPEATS)
        name = f"{prefill}p{decode}d_x{load}"
        rows[name] = {
            "requests_per_s": trace.requests / took.median,
            "fastest_requests_per_s": trace.requests / took.fastest,
            "ms": took.median * 1e3,
            "spread_frac": took.spread_frac,
            "decode_steps": steps,
        }
        report.bar(f"{name} requests/s", rows[name]["requests_per_s"], ">=", LEAST[prefill])
    report.results["mooncake"] = rows
    report.results["mooncake_4p4d"] = {"requests_per_s": rows["4p4d_x1"]["requests_per_s"], "ratio_to_dynamo": None}


def beside_dynamo(report: Report, trace: Workload) -> None:
    """The same trace by Dynamo's engine; of its process and wall time the smaller one counts."""
    python = third_party.interpreter()
    if python is None:
        report.skipped.append(f"Dynamo: ai-dynamo-runtime=={third_party.VERSION} cannot be installed here")
        return
    rows: Found = {}
    for load in (1, 4):
        call = replayer(mooncake.faster(trace, load), 4, 4)
        call()
        own, fastest, its = [], [], []
        for _ in range(ROUNDS):  # in turn, since a shared machine changes its speed
            took = seconds(call, REPEATS)
            own.append(took.median)
            fastest.append(took.fastest)
            try:
                ran = third_party.timed(python, mooncake.TRACE, load, 4, 4)
            except RuntimeError as error:
                report.skipped.append(f"Dynamo: it does not run here: {error}")
                return
            its.append(min(ran["cpu_s"], ran["engine_wall_s"]))
        ratio = statistics.median(theirs / ours for ours, theirs in zip(own, its, strict=True))
        rows[f"4p4d_x{load}"] = {
            "requests_per_s": ran["requests"] / statistics.median(its),
            "fastest_requests_per_s": ran["requests"] / min(its),
            "ratio": ratio,
            "ratio_of_fastest": min(its) / min(fastest),
        }
        report.bar(f"4p4d_x{load} times Dynamo", ratio, ">=", DYNAMO_RATIO if load == 1 else 1.0)
    report.results["dynamo"] = rows
    report.results.setdefault("mooncake_4p4d", {})["ratio_to_dynamo"] = rows["4p4d_x1"]["ratio"]


def families(report: Report, trace: Workload) -> None:
    """Every family at 4P + 4D, against the joint score."""
    calls = {family: replayer(trace, 4, 4, family) for family in FAMILIES}
    for call in calls.values():
        call()
    rounds = [{family: seconds(call, 3).median for family, call in calls.items()} for _ in range(ROUNDS)]
    rates: Found = {}
    for family in FAMILIES:
        rates[family] = {
            "requests_per_s": trace.requests / statistics.median(took[family] for took in rounds),
            "ratio_to_joint": statistics.median(took["routecal"] / took[family] for took in rounds),
        }
        report.bar(f"{family} / joint score", rates[family]["ratio_to_joint"], ">=", FAMILY_RATIO)
    report.results["families"] = rates


def growth(report: Report, trace: Workload, sizes: tuple[int, ...]) -> None:
    """Linear in requests, no worse than the pairs in candidates, little memory."""
    with tempfile.TemporaryDirectory() as folder:
        rows = scaling.by_requests(trace, sizes, Path(folder))
    report.results["by_requests"] = rows
    grown = max(row["to_smallest"] for row in rows) - 1
    report.bar("time a request, most / that of the fewest requests - 1", grown, "<=", scaling.LINEAR_WITHIN)
    report.bar("bytes a request beyond the trace", rows[-1]["bytes_per_request"], "<=", scaling.BYTES_MAX)


def candidates(report: Report, trace: Workload) -> None:
    """The cost of a pair must not grow with their number."""
    rows = scaling.by_candidates(trace)
    report.results["by_candidates"] = rows
    report.bar("ns a pair, 64 x 64 / 4 x 4", rows[-1]["ns_per_pair"] / rows[0]["ns_per_pair"], "<=", 1.0)


def trace_cache(report: Report, trace: Workload) -> None:
    """Parsing, loading what was parsed, replaying."""
    with tempfile.TemporaryDirectory() as folder:
        save_workload(Path(folder) / "w", trace)
        load = seconds(lambda: load_workload(Path(folder) / "w"), REPEATS)
    call = replayer(trace, 4, 4)
    call()
    parsed, ran = seconds(mooncake.read_trace, 3), seconds(call, 3)
    report.results["trace_cache"] = {
        "parse_ms": parsed.median * 1e3, "load_ms": load.median * 1e3, "replay_ms": ran.median * 1e3,
    }  # fmt: skip
    report.bar("loading / replaying", load.median / ran.median, "<=", 1.0)


def compiling(report: Report) -> None:
    """Kernels in a fresh environment: a process with an empty cache, and the one after it."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"ROUTECAL_KERNEL_CACHE": folder}
        first, later = (child("policies.twin.warm", env=env) for _ in range(2))
    report.results["compile"] = {
        "first_cpu_s": first.cpu_s, "first_wall_s": first.wall_s, "later_cpu_s": later.cpu_s,
        "later_wall_s": later.wall_s,
    }  # fmt: skip
    report.bar("first use, s", first.cpu_s, "<=", FIRST_S)
    report.bar("later use, s", later.cpu_s, "<=", LATER_S)


def second_worker(report: Report, trace: Workload) -> None:
    """Two workers against one. Says how busy the machine was: with other work on it the second brings less."""
    if (os.cpu_count() or 1) < 2:
        report.skipped.append("workers: this machine has one core")
        return
    with tempfile.TemporaryDirectory() as folder:
        found = workers.speedup(trace, Path(folder))
    report.results["workers"] = found
    report.bar("two workers / one", found["speedup"], ">=", workers.SPEEDUP_MIN)


def main() -> None:
    """Print one table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--requests", type=int, default=300, help="that the plain reference replays")
    parser.add_argument("--many", action="store_true", help="ten million requests too")
    parts: dict[str, Callable[[Report, Workload], None]] = {
        "cells": cells, "dynamo": beside_dynamo, "families": families, "candidates": candidates,
        "cache": trace_cache, "workers": second_worker,
    }  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=[*parts, "growth", "compile", "demo"], help="some of the parts")
    options = parser.parse_args()
    wanted = set(options.only or [*parts, "growth", "compile", "demo"])
    report = Report()
    if "demo" in wanted:
        report.results |= demo_pool.demo_rows(options.requests)
    if "compile" in wanted:
        _run("compile", lambda: compiling(report))
    if mooncake.TRACE.exists():
        trace = mooncake.read_trace()
        for name, part in parts.items():
            if name in wanted:
                _run(name, lambda part=part: part(report, trace))  # type: ignore[misc]
        if "growth" in wanted:
            sizes = (*scaling.REQUESTS, scaling.MANY) if options.many else scaling.REQUESTS
            _run("growth", lambda: growth(report, trace, sizes))
    else:
        report.skipped.append(f"all cells of the Mooncake trace: {mooncake.TRACE} is not there (ROUTECAL_SHARED)")
    if options.json:
        sys.stdout.write(json.dumps({**report.results, "bars": report.bars, "skipped": report.skipped}) + "\n")
    else:
        _show(report)


def _run(name: str, part: Callable[[], None]) -> None:
    began = time.perf_counter()
    part()
    sys.stderr.write(f"{name}: {time.perf_counter() - began:.0f} s\n")


def _show(report: Report) -> None:
    for key, value in report.results.items():
        if isinstance(value, dict):
            for name, inner in value.items():
                print(f"{key + ' ' + name:<44}{_text(inner)}")
        elif isinstance(value, list):
            for row in value:
                print(f"{key:<44}{_text(row)}")
        else:
            print(f"{key:<44}{_text(value)}")
    print()
    for bar in report.bars:
        said = "" if bar["met"] else "MISSED"
        print(f"{bar['name']:<44}{bar['value']:>14,.2f} {bar['sense']} {bar['bound']:<12,g}{said}")
    for why in report.skipped:
        print(f"left out: {why}")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return f"{value:,.3f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
