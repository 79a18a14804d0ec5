"""Logs of the settings' sources into the lake: the night's own day, and days of its history that are not there yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from features.errors import SourceError
from features.ingest import IngestReport, ingest
from features.lake import Lake
from features.readers.files import find_logs
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
    """Ingest days of which the lake has no requests yet, where their logs are there. A day without logs is no error.

    Sources whose paths name no day hold all days: `ingest_day` reads them.
    """
    there = set(lake.days("requests", pool.name))
    reports = []
    for day in days:
        if day in there:
            continue
        for source in pool.sources:
            paths = [p for p in source.paths_of(day, base) if _exists(p)]
            if paths and any(DAY_MARK in path for path in source.paths):
                reports.append(_ingest(lake, pool, source, paths))
    return tuple(reports)


def _ingest(lake: Lake, pool: Pool, source: Source, paths: Sequence[Path]) -> IngestReport:
    return ingest(
        list(paths),
        format=source.format,
        pool=pool.name,
        lake=lake,
        starts_at_us=source.starts_at_us,
        aliases=pool.aliases,
        class_rules=pool.class_rules,
    )


def _exists(path: Path) -> bool:
    """Whether a path, folder or pattern means a log."""
    try:
        return bool(find_logs([path]))
    except SourceError:
        return False
