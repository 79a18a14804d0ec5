"""`routecal dev`: Dagster's and MLflow's user interfaces."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from features.errors import SettingsError
from pipelines.commands.options import SettingsPath, settings_if_any
from pipelines.console import say

ROOT = Path(__file__).parents[2]
"""The checkout, where dagster.yaml is."""


def dev(
    *,
    settings_path: SettingsPath = None,
    dagster_port: Annotated[int, typer.Option("--dagster-port", help="First port that is tried.")] = 3000,
    mlflow_port: Annotated[int, typer.Option("--mlflow-port", help="First port that is tried.")] = 5000,
) -> None:
    """Serve Dagster's and MLflow's user interfaces on the settings' data. Ctrl-C ends both."""
    from pipelines.dev import serve, servers
    from pipelines.settings import SETTINGS_NAME

    settings = settings_if_any(settings_path)
    if settings is None:
        raise SettingsError("the interfaces need settings", hint="--settings FILE, or run it where routecal.toml is")
    wanted, environment = servers(
        root=ROOT,
        settings=(settings_path or Path(SETTINGS_NAME)).resolve(),
        mlflow_uri=settings.storage.mlflow_uri,
        artifacts=settings.storage.runs / "artifacts",
        logs=settings.storage.runs / "logs",
        dagster_port=dagster_port,
        mlflow_port=mlflow_port,
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    raise typer.Exit(serve(wanted, environment, root=ROOT, stop=stop, say=say))
