"""What a night works on: days of history, their split, the pool's nodes, and what the logs allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import polars as pl

from features.lake import Lake
from models.splits import Split, Window, split_days
from pipelines.settings import Pool
from pipelines.settings_cluster import to_cluster
from policies.twin.cluster import Cluster

LEVELS = ("requests", "pairs", "telemetry", "hashes", "router family", "decision log")
"""What logs allow, each on top of those before it."""
ENOUGH_FRAC = 0.5
"""Share of the requests that must carry a thing for it to count as known."""
_SUMMARY = (
    "arrived_at_us", "finished_at_us", "prefill_node", "decode_node", "prefill_started_at_us", "prefill_finished_at_us",
    "first_token_at_us", "block_hashes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DayLogs:
    """A day's partitions."""

    requests: pl.DataFrame
    node_loads: pl.DataFrame
    steps: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Capability:
    """`level`: the last of `LEVELS` that holds with all before it. `known`: level -> share of requests (0 or 1: of all)
    that carry what it needs.
    """

    level: str
    known: Mapping[str, float]

    def reaches(self, level: str) -> bool:
        """Whether the logs allow what `level` allows."""
        return LEVELS.index(self.level) >= LEVELS.index(level)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The night of `day`.

    `traffic`: day -> first and last arrival, unix microseconds, of every day of history that has requests.
    `embargo_us`: the longest request, arrival to last token. `cluster`: the pool as it is on the night's day.
    `digests`: `<table>/<day>` -> `sha256:…` of every partition that is used.
    """

    day: date
    traffic: Mapping[date, tuple[int, int]]
    embargo_us: int
    split: Split
    cluster: Cluster
    capability: Capability
    digests: Mapping[str, str]

    @property
    def days(self) -> tuple[date, ...]:
        """Days with traffic, ascending; the night's day is the last."""
        return tuple(sorted(self.traffic))


def read_day(lake: Lake, pool: Pool, day: date) -> DayLogs:
    """Requests, node samples and observed steps of a day, in the order of their tables."""
    return DayLogs(*(lake.read(table, day, pool.name) for table in ("requests", "node_loads", "steps")))


def select_inputs(lake: Lake, pool: Pool, day: date) -> Inputs:
    """What the lake holds for the night of `day`.

    Raises ModelError if `day` has no requests, SettingsError if neither settings nor telemetry tell a
    node's size.
    """
    history = pool.history(day)
    summaries = {d: lake.scan("requests", [d], pool.name).select(_SUMMARY).collect() for d in history}
    summaries = {d: frame for d, frame in summaries.items() if frame.height}
    traffic = {d: _first_and_last(frame["arrived_at_us"]) for d, frame in summaries.items()}
    longest_us = max((_longest_us(frame) for frame in summaries.values()), default=0)
    split = split_days(traffic, day=day, history_days=pool.history_days, embargo_us=longest_us, not_before=history[0])
    start_us = traffic[day][0]
    return Inputs(
        day=day,
        traffic=traffic,
        embargo_us=longest_us,
        split=split,
        cluster=to_cluster(pool, at_us=start_us, blocks=usable_blocks(lake, pool, sorted(traffic))),
        capability=capability(lake, pool, split.train, summaries),
        digests={
            f"{table}/{d.isoformat()}": f"sha256:{lake.digest(table, d, pool.name)}"
            for table in ("requests", "node_loads", "steps")
            for d in sorted(set(lake.days(table, pool.name)) & set(traffic))
        },
    )


def usable_blocks(lake: Lake, pool: Pool, days: Sequence[date]) -> dict[str, int]:
    """Usable blocks of the pool's block size by node, as its last sample shows them."""
    frame = (
        lake.scan("node_loads", days, pool.name)
        .filter(pl.col("usable_blocks") > 0)
        .sort("node", "observed_at_us")
        .group_by("node", maintain_order=True)
        .agg((pl.col("usable_blocks") * pl.col("block_tokens") // pool.kv.block_tokens).last().alias("blocks"))
        .collect()
    )
    return dict(frame.rows())


def capability(lake: Lake, pool: Pool, windows: Sequence[Window], summaries: Mapping[date, pl.DataFrame]) -> Capability:
    """What the logs of the train windows' days allow. The router's family is always declared: settings demand it."""
    days = sorted({w.day for w in windows})
    requests = pl.concat([summaries[d] for d in days])
    timed = requests.select(pl.all_horizontal(pl.col(_SUMMARY[2:7]).is_not_null()).mean()).item()
    hashed = requests["block_hashes"].is_not_null().mean()
    samples = (
        lake.scan("node_loads", days, pool.name)
        .select((pl.col("active_blocks").is_not_null() | pl.col("decode_moments").is_not_null()).any())
        .collect()
        .item()
    )
    decided = bool(set(lake.days("decisions", pool.name)) & set(days))
    known = {
        "requests": 1.0,
        "pairs": float(timed or 0.0),
        "telemetry": float(bool(samples)),
        "hashes": float(hashed or 0.0),  # type: ignore[arg-type]  # the mean of a boolean column is a number
        "router family": 1.0,
        "decision log": float(decided),
    }
    level = LEVELS[0]
    for name in LEVELS:
        if known[name] < ENOUGH_FRAC:
            break
        level = name
    return Capability(level, known)


def _first_and_last(arrived_us: pl.Series) -> tuple[int, int]:
    return int(arrived_us.min()), int(arrived_us.max())  # type: ignore[arg-type]  # a time column, not empty


def _longest_us(frame: pl.DataFrame) -> int:
    longest = frame.select((pl.col("finished_at_us") - pl.col("arrived_at_us")).max()).item()
    return int(longest or 0)
