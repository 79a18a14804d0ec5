"""Damaged files over all formats: no exception, no hang, no lost row, nothing in the lake that breaks a rule.

A failure names its seed: `damaged(seed, all_samples())` is the file.
"""

from __future__ import annotations

import contextlib
import faulthandler
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from features.errors import SourceError
from features.ingest import ingest
from features.ingest_report import IngestReport
from features.lake import Lake
from features.quality import check
from features.readers.plain import is_text
from features.readers.registry import READERS
from features.schemas import PROVENANCE, TABLES
from tests.contracts.damage import Damaged, damaged
from tests.contracts.sample import SECRET, Sample, all_samples
from tests.features.logs import NAME_KEY, START_US

SAMPLES = all_samples()
FILES, WORKERS = 10_000, 4
A_FEW = 4
"""Files of each format in every run of the tests."""
LIMIT_S, HANG_S = 20, 300

ONE_ROW_A_LINE = {
    "routecal-requests",
    "mooncake",
}
"""Every line that is not blank is one row, whatever stands on it."""
NOT_COUNTED = {"prometheus-text": b"#"}
"""Starts of lines that hold no row."""
JUDGED_TOGETHER = {
    "routecal-decisions": "a broken candidate costs its whole decision",
    "sglang-loads": "counters are judged against the sample before",
    "mooncake-delta": "a turn's prompt is the sum of those before it",
    "prometheus-text": "series that differ in labels only that are not kept are skipped as ambiguous",
    "prometheus-polls": "as in a scrape",
    "prometheus-range": "as in a scrape",
}
"""Formats of which a sound line may be quarantined for what stands on another one."""
WAYS: dict[int, dict[str, int]] = {
    2: {"features.readers.plain.CHUNK_BYTES": 300},
}
"""One file in eight is read in chunks as well."""
TOLD_APART_IN_A_CHUNK = {"prometheus-text", "prometheus-polls", "prometheus-range", "routecal-decisions"}
"""Series that differ in labels only that are not kept are skipped within a chunk, and beyond it the first one stays.
Two lines that tell one decision differently are refused within a chunk; beyond it what the second one adds is taken."""


def load(path: Path, lake: Lake, name: str) -> IngestReport | None:
    """What became of a file; None if it was refused as a whole."""
    try:
        report = ingest(path, format=name, pool="a", lake=lake, starts_at_us=START_US, name_key=NAME_KEY)
    except SourceError as error:
        if str(path) not in str(error):
            raise
        return None
    assert report.read == report.accepted + report.quarantined + report.skipped + report.duplicates
    assert sum(report.rules.values()) == report.quarantined
    assert sum(report.skipped_kinds.values()) == report.skipped
    assert set(report.samples) == set(report.rules)
    assert all(count > 0 for count in (*report.rules.values(), *report.skipped_kinds.values()))
    return report


def examine(file: Damaged, folder: Path, way: int) -> str:
    """Ingests a damaged file by its content and by its name, and looks at all that is left. How it ended.

    Where both mean the same reader, it is read twice only if `way` is 0. Others of WAYS must give the same rows.
    """
    path = folder / "log.txt"
    path.write_bytes(file.content)
    lake = Lake(folder / "lake")
    by_content = load(path, lake, "auto")
    if by_content is not None:
        look(lake, by_content, file)
    if by_content is None or by_content.format != file.name:
        shutil.rmtree(lake.root, ignore_errors=True)
        report = load(path, lake, file.name)
        if report is not None:
            look(lake, report, file)
    else:
        report = by_content
        if way == 0:  # nothing is added, nothing is lost
            second = load(path, lake, file.name)
            assert second is not None
            assert (second.accepted, second.duplicates) == (0, report.accepted + report.duplicates)
            assert (second.rules, second.skipped_kinds) == (report.rules, report.skipped_kinds)
    nothing_lost(report, file)
    whole_only = not file.by_line or file.name in TOLD_APART_IN_A_CHUNK
    if way in WAYS and file.plain is not None and is_text(file.plain[:300]) and not (way == 2 and whole_only):
        other = Lake(folder / "other")
        with pytest.MonkeyPatch.context() as patched:
            for name, value in WAYS[way].items():
                patched.setattr(name, value)
            same = load(path, other, file.name)
        assert same == (report and replace(report, recognised={})), f"by way {way}: {same}"
        for table in TABLES:
            assert held_rows(other, table).equals(held_rows(lake, table)), f"{table} by way {way}"
    return "refused" if report is None else "read"


def held_rows(lake: Lake, table: str) -> pl.DataFrame:
    return lake.scan(table, lake.days(table, "a"), "a").collect()


def look(lake: Lake, report: IngestReport, file: Damaged) -> None:
    """The lake holds what the report says, and only rows that keep their table's rules."""
    assert not (lake.root / ".staging").exists()
    assert not list(lake.root.rglob("*.tmp"))
    texts = []
    for table in sorted(path.name for path in lake.root.glob("*") if path.name in TABLES):
        rows = held_rows(lake, table)
        if rows.is_empty():
            continue
        if table == READERS[report.format].table:
            assert rows.height == report.accepted
        assert rows.select(pl.struct(TABLES[table].key).is_unique().all()).item()
        missing = {name: pl.lit(None, dtype) for name, dtype in PROVENANCE.items() if name not in rows.columns}
        checked = check(table, rows.with_columns(**missing))
        assert checked.quarantined.is_empty(), checked.quarantined.select("rule", "values").rows()
        assert checked.accepted.height == rows.height
        texts.append(rows.write_json())
    held = 0
    for path in (lake.root / "quarantine").rglob("*.parquet"):
        bad = pl.read_parquet(path)
        assert bad["reason"].null_count() == 0
        texts.append(bad.write_json())
        if path.parent.parent.name == READERS[report.format].table:
            held += bad.height
    assert held == report.quarantined
    if file.with_secret and report.format == file.name:
        assert not any(SECRET.decode() in text for text in texts)


def nothing_lost(report: IngestReport | None, file: Damaged) -> None:
    """Lines are counted, and records that stand as they were came through."""
    if report is None:
        assert not file.whole, "a file with sound records was refused"
        return
    sample = SAMPLES[file.name]
    if file.plain is None or not file.by_line:
        return
    skip = NOT_COUNTED.get(file.name, b"\x00")
    plain = file.plain.removeprefix(b"\xef\xbb\xbf")
    lines = [line for line in plain.split(b"\n") if line.strip() and not line.startswith(skip)]
    if not sample.header:
        assert report.read >= len(lines)
        if file.name in ONE_ROW_A_LINE:
            assert report.read == len(lines)
    if file.name not in JUDGED_TOGETHER:
        assert report.accepted + report.duplicates >= file.whole * sample.rows


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Ends what takes too long; what does not even return to Python ends the process and says where it is."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)  # of the processor's time: others may be at work
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGPROF, before)


def fuzz(seeds: Iterable[int], folder: Path, samples: dict[str, Sample]) -> tuple[Counter[str], list[str]]:
    """How the files of the seeds ended, and what is wrong with those that did not end well."""
    ends: Counter[str] = Counter()
    wrong = []
    for seed in seeds:
        file = damaged(seed, samples)
        place = folder / str(seed)
        place.mkdir()
        try:
            with limited():
                ends[examine(file, place, seed // len(samples) % 8)] += 1
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  a panic of a library is no Exception
            frames = traceback.extract_tb(error.__traceback__)
            where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-4:]))
            text = str(error).replace("\n", " ")[:200]
            wrong.append(f"seed {seed}: {file.name} {file.faults}: {type(error).__name__} {text} at {where}")
        shutil.rmtree(place)
    return ends, wrong


@pytest.fixture
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is kept: the disk need not be waited for."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.mark.usefixtures("_no_sync")
def test_a_few_damaged_files_of_every_format(tmp_path: Path) -> None:
    ends, wrong = fuzz(range(A_FEW * len(SAMPLES)), tmp_path, dict(SAMPLES))
    assert not wrong, "\n".join(wrong)
    assert ends.total() == A_FEW * len(SAMPLES)


@pytest.mark.slow
@pytest.mark.usefixtures("_no_sync")
@pytest.mark.parametrize("worker", range(WORKERS))
def test_ten_thousand_damaged_files(worker: int, tmp_path: Path) -> None:
    ends, wrong = fuzz(range(100_000 + worker, 100_000 + FILES, WORKERS), tmp_path, dict(SAMPLES))
    assert not wrong, f"{len(wrong)} of {FILES // WORKERS}:\n" + "\n".join(wrong)
    assert ends["read"] > FILES // WORKERS // 4


def test_a_seed_gives_one_file_and_faults_of_all_kinds_occur() -> None:
    held = [damaged(seed, SAMPLES) for seed in range(600)]
    assert held[:40] == [damaged(seed, SAMPLES) for seed in range(40)]
    assert len({file.content for file in held}) > 590
    assert len({fault for file in held for fault in file.faults}) == 18
    assert sum(file.whole > 0 for file in held) > 200
    assert sum(file.with_secret for file in held) > 50
