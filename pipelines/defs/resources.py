"""Resources: the project's settings, the lake as an IO manager, MLflow."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from features.lake import Lake
from pipelines.io.parquet import LakeIOManager
from pipelines.io.tracking import Tracking
from pipelines.night.progress import Progress
from pipelines.settings import SETTINGS_NAME, Pool, Settings, load_settings

SETTINGS_VARIABLE = "ROUTECAL_SETTINGS"


class Project(dg.ConfigurableResource):  # type: ignore[type-arg]  # its parameter is the type of itself
    """What the settings say. The file is read anew by every run."""

    settings_path: str

    def settings(self) -> Settings:
        """Raises SettingsError, see `load_settings`."""
        return load_settings(Path(self.settings_path))

    def pool(self, name: str) -> Pool:
        """A pool by name; SettingsError if there is none."""
        return self.settings().pool(name)

    def lake(self) -> Lake:
        """The lake of the settings."""
        return Lake(self.settings().storage.lake)


class Teller:
    """Is told where a night is, as `Progress`; by default nobody listens.

    A plain object: what listens lives in this process and is no configuration.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress

    def tell(self, stage: str, done: int, total: int, best: float | None) -> None:
        """0 done = the stage begins, of 0 = nobody knows; `best`: softened goodput so far."""
        if self._progress is not None:
            self._progress(stage, done, total, best)


def project_resources(settings_path: Path) -> dict[str, dg.ResourceDefinition | object]:
    """All resources of one settings file: for the code location, and for runs in process.

    Raises SettingsError, see `load_settings`.
    """
    storage = load_settings(settings_path).storage
    return {
        "project": Project(settings_path=str(settings_path)),
        "io_manager": LakeIOManager(lake=str(storage.lake), derived=str(storage.runs / "derived")),
        "teller": Teller(),
        "tracking": Tracking(uri=storage.mlflow_uri, artifacts=str(storage.runs / "artifacts")),
    }


def settings_path() -> Path:
    """$ROUTECAL_SETTINGS, else routecal.toml in the working folder."""
    return Path(os.environ.get(SETTINGS_VARIABLE) or SETTINGS_NAME)


@dg.definitions
def resources() -> dg.Definitions:
    """The resources of the settings that the environment names."""
    return dg.Definitions(resources=project_resources(settings_path()))
