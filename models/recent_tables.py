"""Training tables of a night in which groups changed: old rows of those give way to their newest ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from features.length_history import length_group
from models.fit import TrainTables
from models.honesty.steps import Times, decode_times, prefill_times, transfer_times
from models.portable.estimators import Estimators
from models.recency import DAY_US, Change, changes, recent_rows

ESTIMATOR_OF = {"lengths": "length", "prefill_steps": "prefill", "decode_steps": "decode", "transfers": "transfer"}
"""Table -> the estimator that is fitted on it."""
LEAST = {"lengths": 0.5, "prefill_steps": 0.05, "decode_steps": 0.05, "transfers": 0.10}
"""Table -> how much a group's level must move to count as changed. A router's offsets follow lengths within a day, so
that only a group that nothing was learned of, or something else under an old name, is worth its history."""


def recent_tables(
    estimators: Estimators, train: TrainTables, newer: TrainTables
) -> tuple[TrainTables, Mapping[str, tuple[Change, ...]]]:
    """Train tables with the groups that changed by the end of `newer`, whose days follow those of `train`, and what
    changed, by table.

    `estimators`: fitted on `train`. Days of a group are compared with each other, at the load that they had, not with
    the estimate: a group that the fit misses the same way every day did not change.
    """
    evidence = {
        "lengths": _both(_of_lengths(train.lengths), _of_lengths(newer.lengths)),
        "prefill_steps": _both(
            *(_of_nodes(prefill_times(estimators.prefill, of.prefill_steps)) for of in (train, newer))
        ),
        "decode_steps": _both(*(_of_nodes(decode_times(estimators.decode, of.decode_steps)) for of in (train, newer))),
        "transfers": _both(*(_of_pairs(transfer_times(estimators.transfer, of.transfers)) for of in (train, newer))),
    }
    found = {table: changes(rows, least=LEAST[table]) for table, rows in evidence.items()}
    node = ("node",)
    tables = replace(
        train,
        lengths=recent_rows(
            train.lengths, newer.lengths, found["lengths"], keys=(length_group().alias("group"),), time="arrived_at_us"
        ),
        prefill_steps=recent_rows(
            train.prefill_steps, newer.prefill_steps, found["prefill_steps"], keys=node, time="started_at_us"
        ),
        decode_steps=recent_rows(
            train.decode_steps, newer.decode_steps, found["decode_steps"], keys=node, time="observed_at_us"
        ),
        transfers=recent_rows(
            train.transfers,
            newer.transfers,
            found["transfers"],
            keys=("prefill_node", "decode_node"),
            time="started_at_us",
            beside="bytes",
        ),
    )
    return tables, {table: groups for table, groups in found.items() if groups}


def _both(older: pl.DataFrame, newer: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([older.with_columns(newer=pl.lit(False)), newer.with_columns(newer=pl.lit(True))])


def _of_lengths(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(
        length_group().alias("group"),
        (pl.col("arrived_at_us") // DAY_US).alias("day"),
        pl.col("output_tokens").cast(pl.Float64).log1p().alias("log_ratio"),
    )


def _of_nodes(times: Times) -> pl.DataFrame:
    return _of_times(times, {"node": times.groups[0]})


def _of_pairs(times: Times) -> pl.DataFrame:
    _, egress, ingress, *_ = times.groups
    sender, receiver = ([name.partition(":")[2] for name in side] for side in (egress, ingress))
    return _of_times(times, {"prefill_node": sender, "decode_node": receiver})


def _of_times(times: Times, keys: Mapping[str, object]) -> pl.DataFrame:
    ratio = np.log(times.seen / times.predicted)
    named = {name: pl.Series(name, values, dtype=pl.String) for name, values in keys.items()}  # type: ignore[arg-type]
    day = (times.at_us // DAY_US).astype(np.int64)
    return pl.DataFrame({**named, "day": day, "log_ratio": ratio})
