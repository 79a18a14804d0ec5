"""Which session a request belongs to, as its block hashes tell: a turn's prompt starts with that of an earlier turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from features.prefix import BlockIds, dense_ids

SHARED_FROM = 8
"""A prefix after which earlier requests went on in this many ways is a shared head (a system prompt), no session."""

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lineage:
    """What prefixes tell of n requests in order of arrival, shape (n,) each; every value rests on earlier rows only.

    `session`: number of the session's first request, -1 = no hashes. `seen_frac`: share of the request's blocks that
    came in an earlier request, NaN = no hashes.
    """

    session: Int64
    seen_frac: npt.NDArray[np.float64]


def lineage(requests: pl.DataFrame) -> Lineage:
    """Sessions from hash chains. A request goes on with the session of the latest earlier request that shares its
    longest seen prefix, unless that prefix is a shared head. Chains of different block sizes never meet.
    """
    count = requests.height
    session, seen_frac = np.full(count, -1, np.int64), np.full(count, np.nan)
    hashed = requests.select(pl.int_range(pl.len()).alias("at"), "block_hashes", "block_tokens", "block_hash_scope")
    for rows in hashed.filter(pl.col("block_hashes").list.len() > 0).partition_by("block_tokens", maintain_order=True):
        at = rows["at"].to_numpy()
        part = of_chains(dense_ids(rows, rows["block_tokens"][0]))
        session[at], seen_frac[at] = at[part.session], part.seen_frac
    return Lineage(session, seen_frac)


def of_chains(blocks: BlockIds) -> Lineage:
    """Lineage of requests that all have hashes."""
    ids, offset = blocks.ids.astype(np.int64), blocks.offset
    count, size = len(offset) - 1, len(ids)
    lengths = np.diff(offset)
    row = np.repeat(np.arange(count), lengths)
    # Ids are numbered by first appearance, so a block is new where its id is above all before it.
    new = np.ones(size, np.bool_)
    new[1:] = ids[1:] > np.maximum.accumulate(ids)[:-1]
    seen = lengths - np.bincount(row[new], minlength=count)
    last_seen = offset[:-1] + seen - 1
    fan_out = _earlier(_continuations(ids, offset, new, row), ids[last_seen], count)
    follows = (seen > 0) & (fan_out < SHARED_FROM)
    session = np.arange(count)
    session[follows] = _latest_holder(ids, row, ids[last_seen[follows]], np.flatnonzero(follows))
    while (deeper := session[session]).tolist() != session.tolist():
        session = deeper
    return Lineage(session, seen / lengths)


def _continuations(ids: Int64, offset: Int64, new: npt.NDArray[np.bool_], row: Int64) -> Int64:
    """Ascending keys (block, row): a block was followed by a new block, or ended a chain."""
    count = len(offset) - 1
    first = np.zeros(len(ids), np.bool_)
    first[offset[:-1]] = True
    grown = np.flatnonzero(new & ~first)
    after = ids[grown - 1] * (count + 1) + row[grown]
    ended = ids[offset[1:] - 1] * (count + 1) + np.arange(count)
    return np.sort(np.concatenate([after, ended]))


def _earlier(keys: Int64, block: Int64, count: int) -> Int64:
    """How many of `keys` are of row k's block and of a row before k, shape (count,)."""
    start = block * (count + 1)
    found: Int64 = np.searchsorted(keys, start + np.arange(count)) - np.searchsorted(keys, start)
    return found


def _latest_holder(ids: Int64, row: Int64, block: Int64, at: Int64) -> Int64:
    """The latest row before `at[k]` that holds `block[k]`; there is one."""
    wanted = np.zeros(int(ids.max()) + 1, np.bool_)
    wanted[block] = True
    held = wanted[ids]
    stride = int(row[-1]) + 2
    keys = np.sort(ids[held] * stride + row[held])
    found: Int64 = keys[np.searchsorted(keys, block * stride + at) - 1] % stride
    return found
