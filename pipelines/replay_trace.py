"""A trace of any known format as a workload of the twin, parsed once and then memory-mapped.

It is ingested into a lake of its own, so that a replay reads, checks and joins logs exactly as a night does.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

import features
import models
from features.errors import SourceError
from features.ingest import ingest
from features.lake import Lake
from features.length_history import with_length_history
from features.readers.files import find_logs, log_digest
from models.portable.length import LengthLaw
from pipelines.cluster_file import ReplayCluster
from pipelines.night import workloads
from pipelines.night.workloads import kept_rows, known_lengths, length_unknown, to_workload
from policies import store_workloads
from policies.store_workloads import cached_workload
from policies.twin.workload import Workload

STARTS_AT_US = 1_700_006_400_000_000
"""Time 0 of traces with a relative clock: a midnight. Only differences of arrivals are used."""
_POOL = "replay"


@dataclass(frozen=True, slots=True)
class ReplayTrace:
    """A workload in which output tokens of 0 stand for unknown. `cached`: it was not parsed this time."""

    workload: Workload
    cached: bool
    notices: tuple[str, ...]

    def with_lengths(self, described: ReplayCluster, law: LengthLaw) -> Workload:
        """Unknown output lengths stand at the median that a router expects."""
        unknown = self.workload.output_tokens < 1
        return replace(self.workload, output_tokens=known_lengths(unknown, self.workload, described.pool, law))


def read_trace(paths: Sequence[Path], described: ReplayCluster, *, cache: Path) -> ReplayTrace:
    """The trace's requests for a cluster, from `cache` if its files, the class rules and the readers are the same.

    Raises SourceError if nothing can be read or no request is left, SettingsError for a class that the cluster file
    does not describe.
    """
    notices: list[str] = []

    def parse() -> Workload:
        return _parsed(paths, described, notices)

    workload, cached = cached_workload(cache, _key(paths, described), parse)
    return ReplayTrace(workload, cached, tuple(notices))


def _parsed(paths: Sequence[Path], described: ReplayCluster, notices: list[str]) -> Workload:
    pool = described.pool
    with tempfile.TemporaryDirectory(prefix="routecal-replay-") as folder:
        lake = Lake(Path(folder))
        report = ingest(
            paths, format="auto", pool=_POOL, lake=lake, starts_at_us=STARTS_AT_US, class_rules=pool.class_rules
        )
        days = lake.days("requests", _POOL)
        if not days:
            raise SourceError("a trace must hold requests", value=report.format, place=str(paths[0]))
        rows = pl.concat([with_length_history(lake.read("requests", day, _POOL)) for day in days])
    rows = rows.with_columns(replay_at_us="arrived_at_us", in_window=True).sort("replay_at_us", "request_id")
    kept = rows.filter(kept_rows(forced=False))
    if kept.is_empty():
        raise SourceError("a trace must hold requests that ran", value=rows.height, place=str(paths[0]))
    notices.append(
        f"{report.read} rows of {report.format}: {kept.height} requests are replayed; {report.quarantined} rows broke "
        f"a rule, {report.skipped} were skipped, {rows.height - kept.height} never ran"
    )
    unknown = kept.select(length_unknown(forced=False)).to_series().to_numpy()
    workload = to_workload(kept, unknown, pool, described.cluster, forced=False)
    return replace(workload, output_tokens=np.where(unknown, 0, workload.output_tokens).astype(np.int32))


def _key(paths: Sequence[Path], described: ReplayCluster) -> str:
    """Digest of everything that the parsed workload depends on: files, classes and their rules, blocks, this code."""
    digest = hashlib.sha256()
    files = [(log.name, log_digest(log.path)) for log in find_logs(paths)]
    pool = described.pool
    facts = [
        files, described.cluster.block_tokens, [c.name for c in pool.classes], [repr(r) for r in pool.class_rules],
        dict(pool.priority),
    ]  # fmt: skip
    digest.update(json.dumps(facts).encode())
    for package in (features, models):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            digest.update(path.read_bytes())
    for module in (__file__, workloads.__file__, store_workloads.__file__):
        digest.update(Path(module).read_bytes())
    return digest.hexdigest()[:32]
