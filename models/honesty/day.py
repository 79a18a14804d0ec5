"""The estimators in force against one day: every reading, judged together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from models.honesty.alarms import KINDS, Seen, judged, new_groups
from models.honesty.cache import Hits, cache_readings, replayed_hits
from models.honesty.lengths import Expected, follow, length_readings
from models.honesty.reading import Reading
from models.honesty.steps import Times, decode_times, prefill_times, time_readings, transfer_times
from models.portable.estimators import Estimators


@dataclass(frozen=True, slots=True)
class DayTables:
    """What happened, as `follow`, `prefill_times`, `decode_times`, `transfer_times` and `replayed_hits` read it.

    The share of `transfers` is made with the estimators' own port factors. `block_tokens`: of the ids in `prompts`.
    """

    lengths: pl.DataFrame
    prefill_steps: pl.DataFrame
    decode_steps: pl.DataFrame
    transfers: pl.DataFrame
    prompts: pl.DataFrame
    block_tokens: int


@dataclass(frozen=True, slots=True)
class Compared:
    """Predicted beside seen, row by row."""

    length: Expected
    prefill: Times
    decode: Times
    transfer: Times
    cache: Hits


def compare(estimators: Estimators, tables: DayTables) -> Compared:
    """Every row of the tables beside what the estimators expected of it. ModelError for damaged tables."""
    return Compared(
        length=follow(estimators.length, tables.lengths),
        prefill=prefill_times(estimators.prefill, tables.prefill_steps),
        decode=decode_times(estimators.decode, tables.decode_steps),
        transfer=transfer_times(estimators.transfer, tables.transfers),
        cache=replayed_hits(estimators.cache, tables.prompts, tables.block_tokens),
    )


def readings(compared: Compared, counts: Mapping[str, Mapping[str, int]], seen: Seen) -> tuple[Reading, ...]:
    """All readings of a day with their alarms, by estimator. `counts`: as `new_groups` takes them."""
    found = judged([
        *length_readings(compared.length),
        *time_readings(compared.prefill),
        *time_readings(compared.decode),
        *time_readings(compared.transfer),
        *cache_readings(compared.cache),
    ])  # fmt: skip
    return (*new_groups(counts, seen), *found)


def name_counts(tables: DayTables) -> dict[str, dict[str, int]]:
    """Rows of each app (`<class>/<app>`), tenant and node of a day: kind of name (KINDS) -> name -> rows."""
    columns = dict(zip(KINDS, (tables.lengths, tables.lengths, tables.prefill_steps, tables.decode_steps), strict=True))
    found: dict[str, dict[str, int]] = {}
    for kind, frame in columns.items():
        name = kind if kind in ("app", "tenant") else "node"
        if name not in frame.columns:
            continue
        of = pl.concat_str(pl.col("slo_class").fill_null("default"), pl.lit("/"), name) if kind == "app" else name
        counted = frame.drop_nulls(name).select(of).to_series().value_counts(sort=False, name="rows")
        found[kind] = dict(sorted(counted.rows()))
    return found
