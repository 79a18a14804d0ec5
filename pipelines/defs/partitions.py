"""The unit of work of every asset: one UTC day of one pool.

Pools are dynamic partitions: their names come from the settings when a run starts, so one process can serve several
settings files, and a pool that is gone keeps its history.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Protocol

import dagster as dg

DAY, POOL = "day", "pool"
FIRST_DAY = "2015-01-01"
"""Times before it are quarantined."""

NIGHTS = dg.MultiPartitionsDefinition({
    DAY: dg.DailyPartitionsDefinition(start_date=FIRST_DAY, timezone="UTC"),
    POOL: dg.DynamicPartitionsDefinition(name=POOL),
})  # fmt: skip
"""Keys are `<day>|<pool>`."""


class HasPartition(Protocol):
    """The part of an execution context that says which partition runs."""

    @property
    def partition_key(self) -> str: ...  # noqa: D102


def night_key(day: date, pool: str) -> dg.MultiPartitionKey:
    """The key of a night."""
    return dg.MultiPartitionKey({DAY: day.isoformat(), POOL: pool})


def night_of(context: HasPartition) -> tuple[date, str]:
    """Day and pool of the partition that runs."""
    return night_of_key(context.partition_key)


def night_of_key(key: str) -> tuple[date, str]:
    """Day and pool of a key `<day>|<pool>`."""
    day, pool = key.split("|", maxsplit=1)
    return date.fromisoformat(day), pool


def register_pools(instance: dg.DagsterInstance, pools: Iterable[str]) -> None:
    """Make the pools known to the instance; those that it knows already stay."""
    known = set(instance.get_dynamic_partitions(POOL))
    missing = [pool for pool in pools if pool not in known]
    if missing:
        instance.add_dynamic_partitions(POOL, missing)
