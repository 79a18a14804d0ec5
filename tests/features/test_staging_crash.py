"""An ingest that is killed, or that is not alone: partitions are the old ones or the new ones, and no row is lost."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.ingest import ingest
from features.lake import Lake
from tests.features.logs import NAME_KEY, decision, lines, poll, request

ROOT = Path(__file__).parents[2]
DAY, NEXT_DAY = date(2026, 1, 5), date(2026, 1, 6)
REACHED = "reached"
INGEST = f"""
import sys, time
from pathlib import Path
import features.derived.derive, features.ingest, features.lake, features.parquet, features.staging
from features.lake import Lake

def hang():
    print({REACHED!r}, flush=True)
    time.sleep(600)

def hang_after(owner, name, calls):
    plain, left = getattr(owner, name), [calls]
    def counted(*given, **named):
        if not left[0]:
            hang()
        left[0] -= 1
        return plain(*given, **named)
    setattr(owner, name, counted)

def half(name):
    plain = features.parquet._sink
    def sink(out, *given):
        if name in out.name:
            out.write(b"PAR1 and no more")
            out.flush()
            hang()
        plain(out, *given)
    features.parquet._sink = sink

point, log, lake = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
features.staging.HELD_BYTES = features.staging.PART_BYTES = 1_000
features.readers.plain.CHUNK_BYTES = 4_000
if point == "reading":
    hang_after(features.staging.StagedFile, "spill", 3)
elif point.startswith("writing "):
    half(point.removeprefix("writing "))
elif point == "between partitions":
    hang_after(features.lake.Lake, "merge_staged", 1)
elif point == "deriving":
    hang_after(features.ingest, "derive", 0)
report = features.ingest.ingest(log, format="auto", pool="a", lake=Lake(lake), name_key={NAME_KEY!r})
print(report.accepted, report.duplicates, flush=True)
"""


def child(point: str, log: Path, lake: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", INGEST, point, str(log), str(lake)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def killed(point: str, log: Path, lake: Path) -> None:
    """Ingests in a process that is killed when it has come to `point`."""
    process = child(point, log, lake)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == REACHED
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def load(log: Path, lake: Path) -> Any:
    return ingest(log, format="auto", pool="a", lake=Lake(lake), name_key=NAME_KEY)


def parts(lake: Path) -> dict[str, bytes]:
    return {p.relative_to(lake).as_posix(): p.read_bytes() for p in sorted(lake.rglob("*.parquet"))}


def left_over(lake: Path) -> list[str]:
    """What no ingest may leave behind."""
    found = [*lake.rglob("*.tmp"), *(lake / ".staging").rglob("*")]
    return sorted(path.relative_to(lake).as_posix() for path in found)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of requests with names and a broken row, decisions, samples of which steps are derived."""
    folder = tmp_path_factory.mktemp("logs")
    rows = [request(i, session_id=f"s{i}") for i in (*range(20, 60), *range(86_400, 86_430))]
    held = {
        "requests": [*rows, request(99, prompt_tokens=-1)],
        "decisions": [decision(i) for i in range(40)],
        "polls": [poll(i) for i in range(40)],
    }
    for name, objects in held.items():
        (folder / f"{name}.jsonl").write_bytes(lines(*objects))
    return folder


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that holds some of the requests already."""
    folder = tmp_path_factory.mktemp("early")
    rows = [request(i, session_id=f"s{i}") for i in (*range(30), *range(86_400, 86_410))]
    (folder / "early.jsonl").write_bytes(lines(*rows))
    load(folder / "early.jsonl", folder / "lake")
    return folder / "lake"


@pytest.fixture(scope="module")
def wanted(early: Path, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an undisturbed ingest makes of it."""
    lake = tmp_path_factory.mktemp("undisturbed") / "lake"
    shutil.copytree(early, lake)
    load(logs, lake)
    return parts(lake)


@pytest.mark.parametrize(
    "point", ["reading", "writing source=", "writing part.parquet", "between partitions", "deriving"]
)
def test_a_killed_ingest_leaves_whole_partitions_and_the_next_one_finishes(
    point: str, early: Path, logs: Path, wanted: dict[str, bytes], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(early, lake)
    before = parts(lake)
    killed(point, logs, lake)
    assert left_over(lake)
    for path, content in parts(lake).items():
        if path.startswith(("requests", "steps", "node_loads", "decisions")):
            if point in ("reading", "writing source="):
                assert content == before[path], path
            else:  # those that were merged are as they would be, the others as they were
                assert content in (before.get(path), wanted[path]), path
    assert Lake(lake).scan("requests", [DAY, NEXT_DAY], "a").collect().height >= 40

    load(logs, lake)
    assert left_over(lake) == []
    assert parts(lake) == wanted


def test_an_ingest_that_is_killed_in_an_empty_lake_leaves_no_partition(logs: Path, tmp_path: Path) -> None:
    killed("writing part.parquet", logs, tmp_path / "lake")
    assert not list((tmp_path / "lake").rglob("part.parquet"))
    load(logs, tmp_path / "lake")
    load(logs, tmp_path / "undisturbed")
    assert parts(tmp_path / "lake") == parts(tmp_path / "undisturbed")
    assert left_over(tmp_path / "lake") == []


def test_ingests_at_once_lose_nothing(tmp_path: Path) -> None:
    for name, seconds in (("x", range(60)), ("y", range(40, 100)), ("z", range(90, 150))):
        broken = request(seconds[0], request_id=f"{name}-broken", prompt_tokens=-1)
        (tmp_path / f"{name}.jsonl").write_bytes(lines(*(request(i, session_id=f"s{i}") for i in seconds), broken))
    lake = tmp_path / "lake"
    at_work = [child("", tmp_path / f"{name}.jsonl", lake) for name in ("x", "y", "z")]
    told = [process.communicate()[0].split() for process in at_work]
    assert [process.returncode for process in at_work] == [0, 0, 0]
    assert sum(int(accepted) for accepted, _ in told) == 150
    assert sum(int(duplicates) for _, duplicates in told) == 30
    rows = Lake(lake).read("requests", DAY, "a")
    assert rows["request_id"].to_list() == [f"r{i}" for i in range(150)]
    assert {name.split("#")[0] for name in Lake(lake).sources("requests", DAY, "a")} == {
        "x.jsonl",
        "y.jsonl",
        "z.jsonl",
    }
    assert pl.concat(pl.read_parquet(p) for p in (lake / "quarantine").rglob("*.parquet")).height == 3
    assert left_over(lake) == []


def test_an_ingest_does_not_clear_what_another_one_holds(logs: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    other = child("reading", logs, lake)
    assert other.stdout is not None
    assert other.stdout.readline().strip() == REACHED
    held = left_over(lake)
    assert [path for path in held if path.endswith(".parquet")]
    load(logs / "polls.jsonl", lake)
    assert left_over(lake) == held
    other.kill()
    other.communicate()
    load(logs, lake)
    assert left_over(lake) == []
