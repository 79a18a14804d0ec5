"""Speed and memory of ingest: `python -m benchmarks.ingest [--formats F…] [--ways W…] [--memory [N…]] [--json]`.

For every format one log of `--rows` rows is made, and a second one in which one line in a thousand is damaged. Wall
time of two ways over each, interleaved, median of `--repeats`, as a ratio to the fastest plain parse of the clean log
to Parquet (benchmarks/plain/parsers.py), all on one thread, and the same of processor time, for machines that are busy:

  read    reader -> Parquet: what feasibility of a format is judged by
  ingest  the whole of `routecal ingest`: rules, firewall, keyed names, sort, merge into an empty lake, derived tables

`--memory`: peak resident memory of an ingest, each in a process of its own, against the number of rows.
Logs come from the contract suite's samples; Mooncake's and Azure's are the real traces repeated, where they are.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROWS = 480_000
REPEATS = 5
WAYS = ("read", "ingest")
SLOWER = 1.5
"""A plain parse that takes so many times as long as the other one cannot be the fastest."""
DAMAGED = 1_000
START_US = 1_767_571_200_000_000
REAL = {
    "mooncake": ("mooncake-fast25", "conversation_trace.jsonl"),
    "azure-llm": ("azure-llm-2023", "AzureLLMInferenceTrace_conv.csv"),
}
CONVERSATIONS = {"kv-cache-tester": 40}
"""Requests of one conversation, where a log may be of one document a line."""
SHARED = Path(os.environ.get("ROUTECAL_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def make_log(name: str, rows: int, path: Path) -> bool:
    """A clean log of at least `rows` rows. Returns whether it is made of lines."""
    from tests.contracts.sample import all_samples

    sample = all_samples()[name]
    real = SHARED.joinpath("data", "real", *REAL[name]) if name in REAL else None
    with path.open("wb") as out:
        out.write(sample.header)
        if real is not None and real.exists():
            lines = real.read_bytes().splitlines()[sample.header.count(b"\n") :]
            for _ in range(-(-rows // len(lines))):
                out.writelines(line + b"\n" for line in lines)
        elif name in CONVERSATIONS:  # a document a line
            document = json.dumps(json.loads(sample.make(CONVERSATIONS[name])))
            out.writelines(document.encode() + b"\n" for _ in range(-(-rows // CONVERSATIONS[name])))
            return True
        elif sample.by_line:
            out.writelines(sample.records(-(-rows // sample.rows)))
        else:
            out.write(sample.make(-(-rows // sample.rows)).removeprefix(sample.header))
    return sample.by_line


def damage(clean: Path, path: Path) -> None:
    """The log with every DAMAGED-th line followed by half of itself."""
    with clean.open("rb") as lines, path.open("wb") as out:
        for number, line in enumerate(lines):
            out.write(line)
            if number % DAMAGED == DAMAGED // 2:
                out.write(line[: len(line) // 2].rstrip() + b"\n")


def read(name: str, log: Path, folder: Path) -> None:
    """Reader -> Parquet, bad lines -> quarantine."""
    import polars as pl

    from features.parquet import write_rows
    from features.quality import bad_lines
    from features.readers.base import ReadContext
    from features.readers.registry import READERS
    from features.schemas import QUARANTINE, TABLES

    reader, bad = READERS[name], []
    batches = reader.read(log, ReadContext("a", log.name, START_US))
    first = next(batches)
    names = [
        column for column in first.frame.columns if column in TABLES[reader.table].dtypes or column == "source_row"
    ]

    def frames() -> Any:  # noqa: ANN401  an iterator of frames
        batch = first
        while batch is not None:
            bad.extend(batch.bad)
            yield batch.frame.select(names)
            batch = next(batches, None)

    write_rows(folder / "rows.parquet", frames(), first.frame.select(names).clear(), {})
    write_rows(folder / "bad.parquet", [bad_lines(bad, name, log.name)], pl.DataFrame(schema=QUARANTINE), {})


def ingest(name: str, log: Path, folder: Path) -> None:
    """The whole command, into an empty lake."""
    from features.ingest import ingest as run
    from features.lake import Lake

    with tempfile.TemporaryDirectory(dir=folder) as lake:
        run(log, format=name, pool="a", lake=Lake(Path(lake)), starts_at_us=START_US, name_key=b"a key of benchmarks")


def measure(name: str, rows: int, repeats: int, folder: Path, measured: Sequence[str] = WAYS) -> dict[str, Any]:
    """Ratios of one format. A plain parse that takes far longer than the other is timed once."""
    from benchmarks.plain.parsers import parsers_of
    from features.readers.registry import READERS

    clean, dirty = folder / "clean.log", folder / "dirty.log"
    by_line = make_log(name, rows, clean)
    plain = parsers_of(READERS[name])
    ways: dict[str, Callable[[], object]] = {
        f"plain {library}": lambda parse=parse: parse(clean, folder / "plain.parquet")
        for library, parse in plain.items()
    }
    logs = {"clean": clean}
    if by_line:
        damage(clean, dirty)
        logs["dirty"] = dirty
    calls = {"read": read, "ingest": ingest}
    for state, log in logs.items():
        for way in measured:
            ways[f"{way} {state}"] = lambda call=calls[way], log=log: call(name, log, folder)
    plain_ways = {f"plain {library}" for library in plain}
    wall: dict[str, list[float]] = {way: [] for way in ways}
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, call in ways.items():
            if way in plain_ways and wall[way] and wall[way][0] > SLOWER * min(wall[other][0] for other in plain_ways):
                continue
            began, used = time.perf_counter(), time.process_time()
            call()
            wall[way].append(time.perf_counter() - began)
            cpu[way].append(time.process_time() - used)
    seconds = {way: statistics.median(taken) for way, taken in wall.items()}
    return {
        "format": name,
        "bytes": clean.stat().st_size,
        "seconds": seconds,
        "ratio": ratios(seconds),
        "cpu_ratio": ratios({way: statistics.median(taken) for way, taken in cpu.items()}),
    }


def ratios(seconds: Mapping[str, float]) -> dict[str, float]:
    """Times of the ways as parts of the fastest plain parse."""
    fastest = min(taken for way, taken in seconds.items() if way.startswith("plain"))
    return {way: taken / fastest for way, taken in seconds.items() if not way.startswith("plain")}


def peak_bytes(name: str, rows: int, folder: Path) -> int:
    """Peak resident memory of one ingest in a process of its own."""
    import psutil

    log = folder / "memory.log"
    make_log(name, rows, log)
    call = f"from pathlib import Path; from benchmarks.ingest import ingest; ingest({name!r}, Path({str(log)!r}), Path({str(folder)!r}))"  # noqa: E501
    process = psutil.Popen([sys.executable, "-c", call])
    peak = 0
    while process.poll() is None:
        try:
            peak = max(peak, process.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.01)
    if process.wait() != 0:
        raise SystemExit(f"ingest of {name} failed")
    return peak


def main() -> None:
    """Print tables, or one JSON object."""
    from features.readers.registry import READERS

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--formats", nargs="+", default=list(READERS), choices=list(READERS), metavar="F")
    options.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS, metavar="W")
    options.add_argument("--rows", type=int, default=ROWS)
    options.add_argument("--repeats", type=int, default=REPEATS)
    options.add_argument("--memory", type=int, nargs="*", metavar="ROWS", help="sizes at which memory is measured")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    result: dict[str, Any] = {"rows": given.rows, "repeats": given.repeats, "formats": [], "memory": []}
    with tempfile.TemporaryDirectory() as folder:
        for name in given.formats:
            if given.memory is not None:
                for rows in given.memory or [ROWS, 4 * ROWS]:
                    found: Mapping[str, Any] = {
                        "format": name,
                        "rows": rows,
                        "peak_bytes": peak_bytes(name, rows, Path(folder)),
                    }
                    result["memory"].append(found)
                    sys.stderr.write(f"{name:24} {rows:>10} rows  peak {found['peak_bytes'] / 1e6:8.0f} MB\n")
                continue
            found = measure(name, given.rows, given.repeats, Path(folder), given.ways)
            result["formats"].append(found)
            for clock in ("ratio", "cpu_ratio"):
                shown = "  ".join(f"{way} {ratio:5.2f}" for way, ratio in found[clock].items())
                sys.stderr.write(f"{name:24} {found['bytes'] / 1e6:7.0f} MB  {clock:9}  {shown}\n")
    if given.json:
        print(json.dumps(result))


if __name__ == "__main__":
    if os.environ.get("POLARS_MAX_THREADS") != "1":  # read when polars is imported: once more, on one thread
        threads = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
        sys.exit(
            subprocess.run(
                [sys.executable, "-m", "benchmarks.ingest", *sys.argv[1:]], env={**os.environ, **threads}, check=False
            ).returncode
        )
    main()
