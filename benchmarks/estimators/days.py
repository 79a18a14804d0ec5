"""Emulated days and nights of a small pool whose truth can change from one day to the next.

Each day is served by the twin under that day's truth, written as logs in the published formats, and read into a lake
by the readers, like anyone's. A night then does what a night does: it holds the estimators in force against the day and
fits new ones. Equal arguments give equal days and nights.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path

from features.errors import ModelError
from features.lake import Lake
from models.honesty.reading import Reading
from pipelines.demo.logs import write_logs
from pipelines.demo.serve import Served, serve
from pipelines.demo.world import World, load_world
from pipelines.night.fit import Fitted
from pipelines.night.honesty import predictions
from pipelines.night.ingest import ingest_day
from pipelines.night.inputs import select_inputs
from pipelines.night.last_good import EstimatorStore
from pipelines.night.stages import fitted_or_reason
from pipelines.settings import Pool, load_settings
from policies.store import PolicyStore
from policies.twin.traffic import day_traffic

HERE = Path(__file__).resolve().parent
SEEDS_A_DAY = 1000


@dataclass(frozen=True, slots=True)
class Emulation:
    """A pool with everything below `folder`, and its truth on a quiet day."""

    folder: Path
    pool: Pool
    world: World

    @property
    def lake(self) -> Lake:
        """Where its logs go."""
        return Lake(self.folder / "lake")

    @property
    def kept(self) -> EstimatorStore:
        """Where its nights leave their estimators."""
        return EstimatorStore(self.folder / "runs", self.pool.name)

    def day(self, k: int) -> date:
        """Date of day k = 0, 1, …"""
        return self.world.file.first_day + timedelta(days=k)

    def copy_to(self, folder: Path) -> Emulation:
        """The same pool with the same past, to go on in another way."""
        shutil.copytree(self.folder, folder)
        return replace(self, folder=folder)


@dataclass(frozen=True, slots=True)
class Night:
    """What was found: alarms of the estimators that were in force on the day, and the ones of the night."""

    alarms: tuple[Reading, ...]
    fitted: Fitted


def prepare(folder: Path) -> Emulation:
    """The pool of `drift.toml` in a new folder, without any day."""
    folder.mkdir(parents=True)
    path = folder / "routecal.toml"
    path.write_bytes((HERE / "drift.toml").read_bytes())
    return Emulation(folder, load_settings(path).pool("drift"), load_world(HERE / "drift.world.toml"))


def serve_day(emulation: Emulation, k: int, world: World) -> Served:
    """Day k as it goes under the truth of `world`. Its caches start empty: sessions do not cross days."""
    seed = emulation.world.file.seed
    traffic = day_traffic(world.traffic(emulation.pool.kv.block_tokens), day=k, seed=seed)
    today = world.file.model_copy(update={"first_day": emulation.day(k), "seed": seed + SEEDS_A_DAY * (k + 1)})
    return serve(replace(world, file=today), emulation.pool, (traffic,))


def log_day(emulation: Emulation, served: Served) -> None:
    """The day's logs, read into the lake."""
    write_logs(served, emulation.pool, emulation.folder / "logs")
    for day in served.days:
        ingest_day(emulation.lake, emulation.pool, day, base=emulation.folder)


def night(emulation: Emulation, k: int) -> Night:
    """The night of day k, which is in the lake."""
    lake, pool = emulation.lake, emulation.pool
    inputs = select_inputs(lake, pool, emulation.day(k))
    store = PolicyStore(emulation.folder / "store", pool.name)
    found = predictions(lake, store, emulation.kept, pool, inputs)
    fitted, reason = fitted_or_reason(lake, pool, inputs, emulation.folder / "runs")
    if fitted is None:
        raise ModelError(reason)
    return Night(tuple(found.alarms), fitted)
