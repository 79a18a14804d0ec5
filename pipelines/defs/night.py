"""What every asset of a night starts from: its settings, its folders, and who is told how far it is.

A night that cannot judge a policy (too little history, logs that carry too little) still runs to its end: what would
have been stored is then {"unjudged": reason}, and the report says it.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import dagster as dg

from features.errors import LakeError
from features.lake import Lake
from pipelines.defs.partitions import HasPartition, night_of
from pipelines.defs.resources import Project, Teller
from pipelines.night.inputs import Inputs
from pipelines.night.policy import settings_digest
from pipelines.night.progress import Stage, progress_text
from pipelines.night.stored import restored
from pipelines.settings import Pool, Settings
from policies.canonical import sha256
from policies.store import PolicyStore

UNJUDGED, BASIS = "unjudged", "basis"
OWNERS = ["team:routing"]
TOLD_EVERY_S = 5.0

Stored = dict[str, Any]
"""Plain JSON values, as the IO manager keeps them."""
Metadata = dict[str, Any]
"""What an interface shows of an asset: any value that Dagster takes."""


@dataclass(frozen=True, slots=True)
class Night:
    """One day of one pool."""

    day: date
    pool: Pool
    settings: Settings

    @property
    def lake(self) -> Lake:
        """The lake of the settings."""
        return Lake(self.settings.storage.lake)

    @property
    def store(self) -> PolicyStore:
        """The pool's policies."""
        return PolicyStore(self.settings.storage.store, self.pool.name)


def night(context: HasPartition, project: Project) -> Night:
    """The night of the partition that runs."""
    day, pool = night_of(context)
    settings = project.settings()
    return Night(day, settings.pool(pool), settings)


def inputs_of(value: Stored) -> Inputs:
    """The stored asset `night_inputs`."""
    return restored(Inputs, value)


def current_inputs(tonight: Night, value: Stored) -> Inputs:
    """The same, for work on the lake. Raises LakeError if a partition has changed since: late rows, other logs."""
    inputs = inputs_of(value)
    for name, digest in inputs.digests.items():
        table, day = name.split("/", maxsplit=1)
        found = f"sha256:{tonight.lake.digest(table, date.fromisoformat(day), tonight.pool.name)}"
        if found != digest:
            raise LakeError(
                "a night must work on the partitions that it began with",
                value=name,
                hint="materialize night_inputs and what comes after it again",
            )
    return inputs


def basis_of(tonight: Night, night_inputs: Stored, estimators: Stored) -> str:
    """Digest of what search and gates depend on: inputs, estimators, settings of the pool."""
    whole = [night_inputs, estimators, settings_digest(tonight.pool)]
    return sha256(json.dumps(whole, sort_keys=True).encode())


def check_basis(tonight: Night, night_inputs: Stored, estimators: Stored, **stored: Stored) -> None:
    """Raises LakeError if one of the stored assets was made from other inputs, estimators or settings."""
    basis = basis_of(tonight, night_inputs, estimators)
    for name, value in stored.items():
        if value[BASIS] != basis:
            raise LakeError(
                "the assets of a night must come from the same inputs, estimators and settings",
                value=name,
                hint=f"materialize {name} and what comes after it again",
            )


@dataclass(slots=True)
class Told:
    """Tells where a stage is: whoever listens every time, the run's log every few seconds."""

    teller: Teller
    log: dg.DagsterLogManager
    _began_s: float = field(default_factory=time.monotonic)
    _told_s: float = field(default_factory=time.monotonic)

    def __call__(self, name: str, done: int, total: int, best: float | None) -> None:
        """Where the stage is."""
        self.teller.tell(name, done, total, best)
        now_s = time.monotonic()
        if done and now_s - self._told_s >= TOLD_EVERY_S:
            self._told_s = now_s
            self.log.info("%s: %s", name, progress_text(done, total, best, now_s - self._began_s))


@contextmanager
def stage(name: str, context: dg.AssetExecutionContext, teller: Teller, total: int = 0) -> Iterator[Stage]:
    """Tells that a stage of `total` replays at most begins (0 = unknown), and in the log how long it took."""
    began = time.perf_counter()
    told = Stage(name, Told(teller, context.log), total)
    told.tell()
    yield told
    context.log.info("%s: %.1f s", name, time.perf_counter() - began)
