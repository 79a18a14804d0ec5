"""`routecal nightly`: the night of a day, in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from features.errors import SettingsError
from pipelines.commands.options import AsJson, SettingsPath, settings_if_any
from pipelines.commands.progress import StageLines
from pipelines.console import emit, say

if TYPE_CHECKING:
    from pipelines.night.nightly import NightResult

ROOT = Path(__file__).parents[2]
"""The checkout, where dagster.yaml is: `routecal dev` shows the runs that are recorded there."""


def nightly(
    *,
    day: Annotated[str, typer.Option("--day", metavar="YYYY-MM-DD", help="UTC day whose night it is: the test day.")],
    pool_name: Annotated[
        str | None, typer.Option("--pool", metavar="P", help="One pool; without it all of them.")
    ] = None,
    settings_path: SettingsPath = None,
    as_json: AsJson = False,
) -> None:
    """Ingest a day, fit, replay, search, judge and publish. A verdict never makes the exit code 1."""
    from pipelines.nightly_job import run_nightly_assets
    from pipelines.settings import SETTINGS_NAME

    settings = settings_if_any(settings_path)
    if settings is None:
        raise SettingsError("a night needs settings", hint="--settings FILE, or run it where routecal.toml is")
    of_day = _day(day)
    pools = [settings.pool(pool_name)] if pool_name else list(settings.pools.values())
    results = []
    for pool in pools:
        with StageLines(f"{pool.name} {of_day}: ") as progress:
            result = run_nightly_assets(
                (settings_path or Path(SETTINGS_NAME)).resolve(),
                pool.name,
                of_day,
                progress=progress,
                dagster_home=dagster_home(),
            )
        _tell(result)
        results.append(_plain(result))
    if as_json:
        emit(results[0] if pool_name else {"nights": results})


def dagster_home() -> Path:
    """$DAGSTER_HOME, else the checkout."""
    return Path(os.environ.get("DAGSTER_HOME") or ROOT).resolve()


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise SettingsError("--day must be an ISO date", value=text, hint="such as 2026-11-03") from None


def _tell(result: NightResult) -> None:
    say(f"{result.pool} {result.day}: {result.verdict}, promotion ends at {result.promotion_cap}")
    for reason in (*result.reasons, *result.notes):
        say(f"  {reason}")
    if result.evidence["details"].get("arms"):
        show_table(result.evidence)
    say(f"  policy: {result.path or 'none'}{'' if result.signed or result.path is None else ' (not signed)'}")


def show_table(evidence: Mapping[str, Any]) -> None:
    """The table of arms on stderr, as wide as it needs where that is no terminal."""
    from rich.console import Console

    from pipelines.report.table import WIDTH, arms_table

    terminal = sys.stderr.isatty()
    Console(stderr=True, width=None if terminal else WIDTH).print(arms_table(evidence))


def _plain(result: NightResult) -> dict[str, Any]:
    return {
        "pool": result.pool,
        "day": result.day.isoformat(),
        "policy": str(result.path) if result.path else None,
        "content_hash": result.content_hash,
        "verdict": result.verdict,
        "promotion_cap": result.promotion_cap,
        "reasons": list(result.reasons),
        "alarms": [reading.sentence for reading in result.predicted.alarms],
        "estimators": {} if result.fitted is None else result.fitted.origin,
        "current_moved": result.move is not None,
        "test_openings": result.test_openings,
        "repeated": result.repeated,
        "timings_s": {stage: round(seconds, 3) for stage, seconds in result.timings_s.items()},
    }
