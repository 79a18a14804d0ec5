"""Bootstrap refits: the estimators of the same traffic, had other blocks of its time been logged.

Blocks of time, not rows, are drawn: rows of one block share sessions, batches and neighbours on the links. All tables
draw the same blocks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from models.fit import TrainTables
from models.length.fit import LengthRefit
from models.length.rows import spread
from models.metrics import IntArray
from models.portable.estimators import Estimators
from models.steps.fit import fit_decode, fit_prefill
from models.transfer.fit import fit_transfer

BLOCK_US = 60_000_000
BLOCKS_A_DAY = 86_400_000_000 // BLOCK_US
TIMES = {
    "length": ("lengths", "arrived_at_us"),
    "prefill": ("prefill_steps", "started_at_us"),
    "decode": ("decode_steps", "observed_at_us"),
    "transfer": ("transfers", "started_at_us"),
}
"""Estimators that are fitted again -> their table and its time. A prefix cache is not: it needs prompts in their order,
which blocks of time break.
"""
MOST_STEPS, LEAST_STEPS = 50_000, 2_000
"""Steps that a refit takes of a longer table, at most, and of each node at least. Fewer rows only spread more."""


@dataclass(frozen=True, slots=True)
class Draw:
    """`block[k]`, in blocks since 1970, is put in the place of `place[k]`; both ascend, shape (blocks,)."""

    block: IntArray
    place: IntArray


def refits(
    tables: TrainTables, estimators: Estimators, *, count: int, seed: int, kept: Collection[str] = ()
) -> tuple[Estimators, ...]:
    """`estimators`, fitted on `tables`, as `count` draws of blocks would have given them.

    `kept`: those that were not fitted on these tables; they and the prefix caches stay. ModelError if a draw of a table
    is too small to learn from.
    """
    wanted = [name for name in TIMES if name not in kept]
    frames = {name: _thinned(getattr(tables, TIMES[name][0]), name) for name in wanted}
    lengths = LengthRefit.of(estimators.length, tables.lengths) if "length" in wanted else None
    if lengths is not None:
        frames["length"] = lengths.rows.frame.select("arrived_at_us").with_row_index("row")
    if not frames:
        return (estimators,) * count
    blocks = [frame[TIMES[name][1]].cast(pl.Int64) // BLOCK_US for name, frame in frames.items()]
    places = pl.concat(blocks).drop_nulls().unique().sort().to_numpy()
    found = []
    for number in range(count):
        drawn = draw(places, np.random.default_rng([seed, number]))
        rows = {name: resampled(frame, TIMES[name][1], drawn) for name, frame in frames.items()}
        again: dict[str, Any] = {}
        if lengths is not None:
            again["length"] = lengths.refitted(rows["length"]["row"].cast(pl.Int64).to_numpy())
        if "prefill" in rows:
            again["prefill"] = fit_prefill(rows["prefill"], node_type=tables.node_type).laws
        if "decode" in rows:
            capacity = tables.capacity_tokens
            again["decode"] = fit_decode(rows["decode"], capacity_tokens=capacity, node_type=tables.node_type).laws
        if "transfer" in rows:
            again["transfer"] = replace(fit_transfer(rows["transfer"]).law, contention=tables.contention)
        found.append(replace(estimators, **again))
    return tuple(found)


def draw(places: IntArray, rng: np.random.Generator) -> Draw:
    """As many blocks of each day as it has, with replacement; `places`: the blocks with rows, ascending."""
    days = np.split(places, np.flatnonzero(np.diff(places // BLOCKS_A_DAY)) + 1)
    return Draw(np.concatenate([np.sort(rng.choice(day, day.size)) for day in days]), places)


def resampled(table: pl.DataFrame, time: str, drawn: Draw) -> pl.DataFrame:
    """The rows of the drawn blocks, at the times of the places where the blocks are put.

    No block lies on another one: two copies of a transfer do not share its link.
    """
    placed = pl.DataFrame({"_block": drawn.block, "_place": drawn.place}).join(
        table.with_columns(_block=pl.col(time).cast(pl.Int64) // BLOCK_US),
        on="_block",
        how="inner",
        maintain_order="left_right",
    )
    moved = pl.col(time) + (pl.col("_place") - pl.col("_block")) * BLOCK_US
    return placed.select(moved if name == time else pl.col(name) for name in table.columns)


def _thinned(table: pl.DataFrame, estimator: str) -> pl.DataFrame:
    """Of a long table of steps every k-th row of each node, in time."""
    if estimator not in ("prefill", "decode") or table.height <= MOST_STEPS:
        return table
    ordered = table.sort(TIMES[estimator][1], "node")
    return ordered[spread(ordered["node"].rank("dense").cast(pl.Int64).to_numpy() - 1, MOST_STEPS, LEAST_STEPS)]
