"""`routecal diagnose`: where a day's time went, and whether routing is to blame."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.options import AsJson, LakePath, SettingsPath, iso_day, lake_root, settings_if_any
from pipelines.console import emit, say

if TYPE_CHECKING:
    from features.diagnosis.diagnose import Diagnosis


def diagnose(
    *,
    day: Annotated[str, typer.Option("--day", metavar="YYYY-MM-DD", help="UTC day of arrival.")],
    pool_name: Annotated[str, typer.Option("--pool", metavar="P", help="The pool.")],
    lake: LakePath = None,
    settings_path: SettingsPath = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write the page with charts there, as HTML.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say where a day's time went, what is wrong with the pool, and whether routing is the bottleneck.

    Without settings there are no targets and no line rates; what depends on them is then unknown.
    """
    from features.diagnosis.facts import DiagnosisFacts
    from features.lake import Lake
    from pipelines.night.diagnosis import diagnose_day, pool_facts

    of_day = iso_day("--day", day)
    settings = settings_if_any(settings_path)
    known = settings is not None and (settings_path is not None or pool_name in settings.pools)
    facts = pool_facts(settings.pool(pool_name), of_day) if settings is not None and known else DiagnosisFacts()
    found = diagnose_day(Lake(lake_root(lake, settings)), of_day, pool_name, facts)
    if not facts.nodes:
        say("the settings do not describe this pool: targets, racks and line rates are unknown")
    _tell(found)
    page = None if out is None else _write(found, out)
    if as_json:
        emit(found.to_dict() | {"page": None if page is None else str(page)})


def _tell(found: Diagnosis) -> None:
    from rich.console import Console

    from pipelines.report.diagnosis_page import terminal_tables
    from pipelines.report.table import WIDTH

    console = Console(stderr=True, width=None if sys.stderr.isatty() else WIDTH)
    for table in terminal_tables(found):
        console.print(table)
        say()
    for finding in found.findings:
        say(f"{finding.severity}: {finding.name}, {finding.subject}")
        say(f"  {finding.text}")
    for line in (*(answer.text for answer in found.answers), *found.sampled):
        say(line)


def _write(found: Diagnosis, folder: Path) -> Path:
    from features.errors import SettingsError
    from features.parquet import write_atomically
    from pipelines.report.diagnosis_page import diagnosis_html

    path = folder / f"diagnosis-{found.pool}-{found.day.isoformat()}.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError("--out must be a folder", value=error.strerror, place=str(folder)) from error
    write_atomically(path, diagnosis_html(found).encode())
    say(f"page: {path}")
    return path
