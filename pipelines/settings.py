"""Settings as code uses them: frozen, checked, in the types of the packages that need them.

`load_settings` reads routecal.toml; `pipelines.settings_file` says what may stand in it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Literal

from features.errors import SettingsError
from features.firewall.facts import PoolFacts
from features.kv import KvGeometry, bytes_per_s
from features.naming import Alias, ClassRule
from policies.evidence.fidelity import FidelityLimits
from policies.evidence.sweep import SweepPlan
from policies.families.registry import moment_of
from policies.objective import Goal
from policies.policy import ClassPolicy, DecodeMoment, Policy
from policies.search.search import Budget
from policies.twin.cluster import Discipline, RouterSetup

DAY_US = 86_400_000_000
SETTINGS_NAME = "routecal.toml"


@dataclass(frozen=True, slots=True)
class Span:
    """From `from_us` until before `to_us`, unix microseconds; None = open."""

    from_us: int | None = None
    to_us: int | None = None

    def holds(self, at_us: int) -> bool:
        """Whether a moment lies within."""
        return (self.from_us is None or self.from_us <= at_us) and (self.to_us is None or at_us < self.to_us)

    def meets(self, other: Span) -> bool:
        """Whether the two have a moment in common."""
        starts = max(self.from_us or 0, other.from_us or 0)
        ends = [end for end in (self.to_us, other.to_us) if end is not None]
        return not ends or starts < min(ends)


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node while it is part of the pool. `blocks` None = learned from telemetry; `kind` as `models.gpus` names types,
    None = unknown. `classes`: SLO classes that it serves, () = all.
    """

    name: str
    role: Literal["prefill", "decode"]
    rack: str
    blocks: int | None
    port_gbps: float
    valid: Span
    kind: str | None = None
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolUplink:
    """One direction between two racks while it has this speed."""

    from_rack: str
    to_rack: str
    gbps: float
    valid: Span


@dataclass(frozen=True, slots=True)
class Break:
    """History does not reach across `at_us`."""

    at_us: int
    reason: str


@dataclass(frozen=True, slots=True)
class Source:
    """Logs of one format. `{day}` in a path stands for the UTC day."""

    paths: tuple[str, ...]
    format: str
    starts_at_us: int | None

    def paths_of(self, day: date, base: Path) -> tuple[Path, ...]:
        """The day's paths; relative ones start at `base`."""
        return tuple(base / path.replace("{day}", day.isoformat()) for path in self.paths)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Budget of the search, factors on the arrival rate that a trial is replayed at, processes, seed."""

    budget: Budget
    loads: tuple[float, ...]
    workers: int
    seed: int


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Thresholds of the gates, see `policies.evidence.Plan`. `waivers`: gates that may stay unrun. `refits`: of the
    estimators, 0 = none.
    """

    alpha: float
    margin: float
    drill_margin: float
    resamples: int
    refits: int
    waivers: tuple[str, ...]
    fidelity: FidelityLimits
    sweep: SweepPlan


@dataclass(frozen=True, slots=True)
class Pool:
    """One pool. `classes` and `goal` are in the same order: a request's class index is its place there.

    `incumbent` carries the risk tables of an unfitted pool. `families`: what the pool's router can run. `warm_up_s`:
    seconds of traffic before a replayed window that do not count. `priority`: by class, in the queues of P
    nodes; 0 where none stands. `decode_chosen`: when the pool's router
    chooses D, None = as each family does.
    """

    name: str
    model: str
    kv: KvGeometry
    discipline: Discipline
    router: RouterSetup
    families: tuple[str, ...]
    nodes: tuple[PoolNode, ...]
    uplinks: tuple[PoolUplink, ...]
    aliases: tuple[Alias, ...]
    breaks: tuple[Break, ...]
    class_rules: tuple[ClassRule, ...]
    classes: tuple[ClassPolicy, ...]
    goal: Goal
    incumbent: Policy
    sources: tuple[Source, ...]
    tensor_parallel: int | None
    history_days: int
    warm_up_s: float
    search: SearchSettings
    gates: GateSettings
    priority: Mapping[str, int]
    decode_chosen: DecodeMoment | None

    def facts(self) -> PoolFacts:
        """What the firewall of ingest may hold its logs against."""
        return PoolFacts(
            line_bytes_per_s=max(bytes_per_s(node.port_gbps) for node in self.nodes),
            kv_bytes_per_token=float(self.kv.bytes_per_token),
            chunk_tokens=self.discipline.chunk_tokens,
            tensor_parallel=self.tensor_parallel,
        )

    def moment_of(self, family: str) -> DecodeMoment:
        """When D is chosen where the pool's router runs a family."""
        return self.decode_chosen or moment_of(family)

    def node_types(self) -> dict[str, str]:
        """Node -> its type, as it is described last; nodes of unknown type are left out."""
        return {node.name: node.kind for node in self.nodes if node.kind is not None}

    def history(self, day: date) -> tuple[date, ...]:
        """Days that the night of `day` may use, ascending, `day` last; none of them before the last break."""
        end_us = ((day - date(1970, 1, 1)).days + 1) * DAY_US
        last = max((b.at_us for b in self.breaks if b.at_us < end_us), default=None)
        days = [day - timedelta(days=back) for back in reversed(range(self.history_days))]
        starts = [((d - date(1970, 1, 1)).days * DAY_US, d) for d in days]
        # A day that holds a break mixes two pools: only whole days after it count, and `day` itself.
        return tuple(d for start_us, d in starts if last is None or start_us >= last or d == day)


@dataclass(frozen=True, slots=True)
class Storage:
    """Folders, absolute. `mlflow_uri`: the tracking store."""

    lake: Path
    store: Path
    runs: Path
    mlflow_uri: str


@dataclass(frozen=True, slots=True)
class Keys:
    """Paths of PEM files."""

    private_key: Path | None
    trusted_keys: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """All of routecal.toml. `notices`: what was filled in for the reader, to be printed."""

    base: Path
    storage: Storage
    keys: Keys
    hour_utc: int
    minute: int
    pools: Mapping[str, Pool]
    notices: tuple[str, ...]

    def pool(self, name: str) -> Pool:
        """A pool by name.

        Raises SettingsError if there is none of that name.
        """
        if name not in self.pools:
            raise SettingsError("a pool must stand in the settings", value=name, hint=f"one of {', '.join(self.pools)}")
        return self.pools[name]


def load_settings(path: Path) -> Settings:
    """The settings of a file.

    Raises SettingsError with the key, the value, the rule and a hint for the first thing that is wrong.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise SettingsError("a settings file must exist", value=str(path), hint="copy routecal.toml") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError("a settings file must be readable", value=str(error), place=str(path)) from error
    return parse_settings(text, base=path.resolve().parent, place=path.name)


def parse_settings(text: str, *, base: Path, place: str = SETTINGS_NAME) -> Settings:
    """The settings of a TOML text; relative paths in it start at `base`. Errors as `load_settings`."""
    from pipelines.settings_build import build
    from pipelines.settings_errors import validated
    from pipelines.settings_file import SettingsFile

    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # no TOML, or a number or nesting that no settings need
        raise SettingsError("settings must be TOML", value=str(error), place=place) from error
    return build(validated(table, place, SettingsFile), base=base, place=place)
