"""Which rows speak for a group as it is now: all of them while it is as it was, else those since it changed.

A group is a node, a pair of nodes, or a class with its application. A night's fit stands on the older days; where the
newest days of a group disagree with it by more than chance and more than matters, the group's rows from before the
change are dropped and its newest ones taken in. Quiet groups keep their history and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import polars as pl

from models.metrics import MAD_TO_SIGMA, FloatArray

CERTAIN_SIGMAS = 5.0
"""A day differs if it lies this many standard errors off; rows of one day are not independent, so it is many."""

MIN_ROWS = 30
"""A group's day with fewer rows says nothing about a change."""

MEDIAN_ERROR = 1.2533
"""Standard error of a median / that of a mean, of normal errors."""

DAY_US = 86_400_000_000
EVIDENCE = ("day", "log_ratio", "newer")


@dataclass(frozen=True, slots=True)
class Change:
    """A group that is not what it was. `day`: the first one of how it is now, days since 1970. `factor`: its newest
    days / what the fit says; 1.0 if there is nothing older to compare with.
    """

    group: tuple[str | None, ...]
    day: int
    factor: float


def changes(evidence: pl.DataFrame, *, least: float) -> tuple[Change, ...]:
    """Groups that changed, sorted.

    `evidence`: one row an observation; columns that name its group (null = a name too), then EVIDENCE: day since 1970,
    log(observed / fitted) by a fit on the older days (null = unknown), and whether its day is newer than the fit's.
    A group changed if its newest day and an earlier one differ by more than log(1 + `least`) and `CERTAIN_SIGMAS`; a
    group of which older days have fewer than `MIN_ROWS` rows is new. Newest and earlier days have `MIN_ROWS` rows each.
    """
    keys = [name for name in evidence.columns if name not in EVIDENCE]
    middle = pl.col("log_ratio").median()
    days = (
        evidence.filter(pl.col("log_ratio").is_not_null())
        .group_by(*keys, "day")
        .agg(
            pl.len().alias("rows"),
            middle.alias("middle"),
            (pl.col("log_ratio") - middle).abs().median().alias("spread"),
            pl.col("newer").all(),
        )
        .with_columns(known=pl.col("rows").filter(~pl.col("newer")).sum().over(keys))
        .filter(pl.col("rows") >= MIN_ROWS)
        .sort(*keys, "day")
    )
    found = []
    for group in days.partition_by(*keys, maintain_order=True):
        value, rows, spread = (group[name].to_numpy() for name in ("middle", "rows", "spread"))
        at = newest_regime(value, MEDIAN_ERROR * MAD_TO_SIGMA * spread / np.sqrt(rows), least=float(np.log1p(least)))
        unseen = int(group["known"][0]) < MIN_ROWS
        if at or unseen:
            factor = 1.0 if unseen else float(np.exp(np.median(value[at:])))
            found.append(Change(group.select(keys).row(0), int(group["day"][at]), factor))
    return tuple(found)


def told(changed: Mapping[str, Sequence[Change]]) -> tuple[str, ...]:
    """What changed, for people. `changed`: table -> its groups."""
    found = []
    for table, groups in sorted(changed.items()):
        for change in groups:
            name = " -> ".join(part or "?" for part in change.group)
            day = (date(1970, 1, 1) + timedelta(days=change.day)).isoformat()
            what = f"{name} changed on {day} (× {change.factor:.2f})" if change.factor != 1.0 else f"{name} is new"
            found.append(f"{table.replace('_', ' ')}: {what}: it is fitted on its rows since {day}.")
    return tuple(found)


def newest_regime(value: FloatArray, error: FloatArray, *, least: float) -> int:
    """Where the days begin that agree with the last one; 0 = all do. `value`, `error` >= 0: shape (days,), ascending by
    day. Days agree within `least` or `CERTAIN_SIGMAS` errors.
    """
    weight = 1.0 / np.maximum(error, 1e-6) ** 2
    total, weighted = float(weight[-1]), float(weight[-1] * value[-1])
    for at in range(len(value) - 2, -1, -1):
        allowed = max(least, CERTAIN_SIGMAS * float(np.hypot(error[at], total**-0.5)))
        if abs(float(value[at]) - weighted / total) > allowed:
            return at + 1
        total += float(weight[at])
        weighted += float(weight[at] * value[at])
    return 0


def recent_rows(
    older: pl.DataFrame,
    newer: pl.DataFrame,
    changed: Sequence[Change],
    *,
    keys: Sequence[str | pl.Expr],
    time: str,
    beside: str | None = None,
) -> pl.DataFrame:
    """The older rows, except that a changed group has its older and newer rows since the change.

    `keys`: columns, or what makes them, that name a group as its `Change` does. `time`: column in unix microseconds.
    `beside`: where rows bear on others, as transfers on one port do, all rows of the days in use stay, those that do
    not speak with null in this column.
    """
    if not changed:
        return older
    marked = pl.concat(
        [older.with_columns(_newer=pl.lit(False)), newer.with_columns(_newer=pl.lit(True))],
        how="vertical_relaxed",
    )
    group = marked.select(*keys)
    names = [f"_{name}" for name in group.columns]
    named = (group[name].alias(f"_{name}") for name in group.columns)
    marked = marked.with_columns(*named, _day=pl.col(time) // DAY_US)
    schema: dict[str, pl.DataType] = {**dict(zip(names, group.dtypes, strict=True)), "_since": pl.Int64()}
    since = pl.DataFrame([(*change.group, change.day) for change in changed], schema=schema, orient="row")
    joined = marked.join(since, on=names, how="left", nulls_equal=True, maintain_order="left")
    speaks = pl.when(pl.col("_since").is_null()).then(~pl.col("_newer")).otherwise(pl.col("_day") >= pl.col("_since"))
    if beside is not None:
        used = ~pl.col("_newer") | (pl.col("_day") >= min(change.day for change in changed))
        joined = joined.with_columns(pl.when(speaks).then(beside).alias(beside))
        speaks = used
    return joined.filter(speaks).select(older.columns)
