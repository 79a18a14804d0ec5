"""`routecal ingest`: logs into the lake."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from features.errors import SettingsError
from pipelines.commands.options import AsJson, LakePath, SettingsPath, lake_root, settings_if_any
from pipelines.console import WRONG_USE, emit, say

if TYPE_CHECKING:
    from features.ingest_report import IngestReport
    from pipelines.settings import Pool, Settings

US_PER_S = 1_000_000


def ingest(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, folders or patterns.")],
    *,
    format_name: Annotated[
        str, typer.Option("--format", metavar="F", help="A reader's name, or auto: by the content of each file.")
    ] = "auto",
    pool_name: Annotated[
        str | None, typer.Option("--pool", metavar="P", help="Pool; without it the settings' only one.")
    ] = None,
    lake: LakePath = None,
    starts_at: Annotated[
        str | None,
        typer.Option("--starts-at", metavar="ISO", help="Start of a trace with a relative clock; UTC if it says none."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="The trace that was replayed, for logs of a replay.")
    ] = None,
    settings_path: SettingsPath = None,
    as_json: AsJson = False,
) -> None:
    """Read logs into the lake, by UTC day and pool. Reading a file again adds nothing."""
    from features.ingest import ingest as run
    from features.lake import Lake
    from pipelines.names import name_key

    starts_at_us = None if starts_at is None else _moment_us(starts_at)
    settings = settings_if_any(settings_path)
    name, pool = _pool(pool_name, settings)
    if pool is None or not pool.class_rules:
        say("no class rules: requests whose log names no class are of class `default`")
    report = run(
        paths,
        format=format_name,
        pool=name,
        lake=Lake(lake_root(lake, settings)),
        starts_at_us=starts_at_us,
        aliases=pool.aliases if pool else (),
        class_rules=pool.class_rules if pool else (),
        facts=pool.facts() if pool else None,
        name_key=name_key(),
        trace=trace,
    )
    _tell(report)
    if as_json:
        emit(report.to_dict())
    if report.nothing_read:
        raise typer.Exit(WRONG_USE)


def _pool(name: str | None, settings: Settings | None) -> tuple[str, Pool | None]:
    """The pool's name and, if the settings describe it, its settings."""
    pools = settings.pools if settings else {}
    if name is None:
        if len(pools) != 1:
            raise SettingsError(
                "a pool must be named", hint=f"--pool, one of {', '.join(pools)}" if pools else "--pool P"
            )
        name = next(iter(pools))
    return name, pools.get(name)


def _moment_us(text: str) -> int:
    """Unix microseconds of an ISO date or time; without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(
            "--starts-at must be an ISO time", value=text, hint="such as 2026-11-01T09:00:00Z"
        ) from None
    whole = moment.replace(tzinfo=moment.tzinfo or UTC)
    return round((whole - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * US_PER_S)


def _tell(report: IngestReport) -> None:
    """The report for people: rows add up, and every loss has a name."""
    say(
        f"{report.files} file(s), {report.format}: {report.read} rows read = {report.accepted} accepted + "
        f"{report.quarantined} quarantined + {report.skipped} skipped + {report.duplicates} duplicates"
    )
    for name, why in report.recognised.items():
        say(f"recognised {name}: {why}")
    for title, counts in (
        ("quarantined by rule", report.rules),
        ("skipped by kind", report.skipped_kinds),
        ("rows", report.told),
        ("set right by rule", report.corrected),
        ("clocks moved, µs", report.clock_offsets_us),
        ("derived rows", report.derived),
        ("derived rows quarantined by rule", report.derived_rules),
        ("names that no alias maps", report.unmapped),
    ):
        if counts:
            say(f"{title}: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    for rule, sample in report.samples.items():
        row = "" if sample["row"] is None else f" row {sample['row']}"
        say(f"  {rule}, first at {sample['file']}{row}: {sample['reason']}")
    for name, why in report.unreadable.items():
        say(f"could not be read: {name}: {why}")
    for partition in report.partitions:
        say(f"partition {partition}")
