"""Options that several commands share, and what follows from them."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from pipelines.console import say

if TYPE_CHECKING:
    from pipelines.settings import Settings

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
SettingsPath: TypeAlias = Annotated[
    Path | None,
    typer.Option("--settings", metavar="FILE", help="Settings; without it ./routecal.toml if there is one."),
]
LakePath: TypeAlias = Annotated[
    Path | None, typer.Option("--lake", metavar="DIR", help="Folder of the lake; without it the settings' own.")
]


def settings_if_any(path: Path | None) -> Settings | None:
    """The settings named, or those of the working folder, or None. Prints what the settings fill in.

    Raises SettingsError if a named file does not exist or a file breaks a rule.
    """
    from pipelines.settings import SETTINGS_NAME, load_settings

    if path is None and not Path(SETTINGS_NAME).exists():
        return None
    settings = load_settings(path or Path(SETTINGS_NAME))
    for notice in settings.notices:
        say(notice)
    return settings


def lake_root(lake: Path | None, settings: Settings | None) -> Path:
    """The lake of the command line, else of the settings.

    Raises SettingsError if neither names one.
    """
    from features.errors import SettingsError

    if lake is not None:
        return lake
    if settings is None:
        raise SettingsError("a lake must be named", hint="give --lake DIR, or --settings FILE")
    return settings.storage.lake


def iso_day(option: str, text: str) -> date:
    """The day that an option names.

    Raises SettingsError if it is none.
    """
    from features.errors import SettingsError

    try:
        return date.fromisoformat(text)
    except ValueError:
        raise SettingsError(f"{option} must be an ISO date", value=text, hint="such as 2026-11-03") from None
