"""Logs of the settings' sources into the lake: the night's own day, and days of its history that are not there yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from features.errors import SourceError
from features.ingest import ingest
from features.ingest_report import IngestReport
from features.lake import Lake
from features.readers.files import LogFile, find_logs
from features.schemas import TABLES
from pipelines.names import name_key
from pipelines.settings import Pool, Source

DAY_MARK = "{day}"


def ingest_night(lake: Lake, pool: Pool, day: date, *, base: Path) -> tuple[IngestReport, ...]:
    """History that is missing, then the day itself; one report a source that was read. Errors as `ingest_day`."""
    return (
        *ingest_history(lake, pool, pool.history(day)[:-1], base=base),
        *ingest_day(lake, pool, day, base=base),
    )


def ingest_day(lake: Lake, pool: Pool, day: date, *, base: Path) -> tuple[IngestReport, ...]:
    """Ingest every source of the pool for one day, in the order of the settings; relative paths start at `base`.

    Reading a log again adds no row. Raises SourceError if a source has no log of the day, or nothing can be read.
    """
    return tuple(_ingest(lake, pool, source, source.paths_of(day, base)) for source in pool.sources)


def ingest_history(lake: Lake, pool: Pool, days: Sequence[date], *, base: Path) -> tuple[IngestReport, ...]:
    """Ingest logs of earlier days that the lake has no row of yet: of a day that is new, or of a night that was broken.

    A day without logs is no error, and a log that cannot be read costs itself only. Sources whose paths name no day
    hold all days: `ingest_day` reads them.
    """
    reports = []
    for day in days:
        held = _held(lake, pool, day)
        for source in pool.sources:
            if not any(DAY_MARK in path for path in source.paths):
                continue
            logs = {path: _logs(path) for path in source.paths_of(day, base)}
            paths = [path for path, found in logs.items() if found]
            if all(log.name in held for path in paths for log in logs[path]):
                continue
            try:
                reports.append(_ingest(lake, pool, source, paths))
            except SourceError as error:
                reports.append(_unreadable(source, sum(map(len, logs.values())), error))
    return tuple(reports)


def _held(lake: Lake, pool: Pool, day: date) -> set[str]:
    """Names of the logs that a day's partitions came from."""
    tables = [table for table in TABLES if day in lake.days(table, pool.name)]
    return {name.rpartition("#")[0] for table in tables for name in lake.sources(table, day, pool.name)}


def _unreadable(source: Source, files: int, error: SourceError) -> IngestReport:
    """The report of logs of which nothing could be read; each counts as one quarantined row."""
    return IngestReport(
        format=source.format,
        files=files,
        read=files,
        accepted=0,
        quarantined=files,
        skipped=0,
        duplicates=0,
        rules={"file_unreadable": files},
        partitions=[],
        unreadable={error.place: str(error)},
    )


def _ingest(lake: Lake, pool: Pool, source: Source, paths: Sequence[Path]) -> IngestReport:
    return ingest(
        list(paths),
        format=source.format,
        pool=pool.name,
        lake=lake,
        starts_at_us=source.starts_at_us,
        aliases=pool.aliases,
        class_rules=pool.class_rules,
        facts=pool.facts(),
        name_key=name_key(),
    )


def _logs(path: Path) -> list[LogFile]:
    """Logs that a path, folder or pattern means, none if there are none."""
    try:
        return find_logs([path])
    except SourceError:
        return []
