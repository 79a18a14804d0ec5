"""Uses of a node's prefix cache as lookups that were hits or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from features.cache_uses import COLUMNS
from features.errors import ModelError
from features.prefix import dense_ids
from models.cache.reuse import Reuses, reuses
from models.columns import LARGEST, names, numeric, require
from models.metrics import BoolArray, FloatArray, IntArray

MOST_USES = 2_000_000
"""Uses of blocks of a node that are looked at, the newest."""


@dataclass(frozen=True, slots=True)
class NodeUses:
    """The prompts of one node in time; arrays of shape (prompts,) unless said otherwise.

    `block_tokens`: tokens of the blocks that are counted here. `most`: blocks that a prompt may find cached: its last
    token is always computed. `cached`: blocks that were found, NaN = not logged. `hit`: of `reuses`, whether the block
    was found; `told`: of `reuses`, whether that is known. `cold`: found more than any prompt of the table had used
    before, so the cache was filled before the table begins.
    """

    block_tokens: int
    at_us: IntArray
    most: IntArray
    cached: FloatArray
    reuses: Reuses
    hit: BoolArray
    told: BoolArray
    cold: BoolArray


def read(table: pl.DataFrame) -> dict[str, NodeUses]:
    """The table by node, sorted by name. ModelError if a column is missing or damaged.

    A node whose prompts differ in `block_tokens` is read by those that are most frequent.
    """
    require(table, COLUMNS, table="cache")
    for name, least in (("at_us", -LARGEST), ("block_tokens", 1.0), ("prompt_tokens", 0.0)):
        if np.isnan(numeric(table, name, table="cache", least=least)).any():
            raise ModelError("a column must have no nulls", place=f"cache.{name}")
    numeric(table, "cached_tokens", table="cache", least=0.0)
    nodes = sorted(set(names(table, "node", table="cache")))
    return {node: _node(table.filter(pl.col("node") == node)) for node in nodes}


def _node(rows: pl.DataFrame) -> NodeUses:
    sizes = rows["block_tokens"].value_counts(sort=True).sort("count", "block_tokens", descending=[True, False])
    block_tokens = int(sizes["block_tokens"][0])
    rows = rows.filter(pl.col("block_tokens") == block_tokens).with_columns(_row=pl.int_range(pl.len()))
    rows = rows.sort("at_us", "_row").drop("_row")
    newest = rows.select(pl.col("block_hashes").list.len().reverse().cum_sum().reverse() <= MOST_USES).to_series()
    rows = rows.filter(newest | (pl.int_range(pl.len()) == pl.len() - 1))
    blocks = dense_ids(rows, block_tokens)
    at_us = rows["at_us"].to_numpy().astype(np.int64)
    found = reuses(blocks.ids.astype(np.int64), blocks.offset, at_us)
    have = np.diff(blocks.offset)
    most = np.minimum(have, (rows["prompt_tokens"].to_numpy().astype(np.int64) - 1) // block_tokens)
    cached = rows["cached_tokens"].cast(pl.Float64).fill_null(float("nan")).to_numpy() // block_tokens
    cached = np.minimum(cached, most)
    used_before = np.bincount(found.request, minlength=len(have))
    return NodeUses(
        block_tokens=block_tokens,
        at_us=at_us,
        most=most,
        cached=cached,
        reuses=found,
        hit=found.place < np.nan_to_num(cached)[found.request],
        told=np.isfinite(cached)[found.request] & (found.place < most[found.request]),
        cold=np.nan_to_num(cached) > used_before,
    )
