"""Hash chains of prompt blocks: thinning for storage, dense ids for replays, and how much could be reused.

A chained hash covers its block and everything before it, so equal hashes mean equal prefixes. Only full blocks have
one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import TwinError

KEPT_TOKENS = 256
"""Kept hashes are at least this many tokens apart."""


def thinning(block_tokens: int) -> int:
    """Every how many-th hash of blocks of `block_tokens` tokens is kept."""
    return max(1, -(-KEPT_TOKENS // block_tokens))


def thin(frame: pl.DataFrame) -> pl.DataFrame:
    """Requests with hashes of full blocks only, at least KEPT_TOKENS apart; `block_tokens` becomes their distance.

    Rows without hashes or block size stay as they are. Every k-th hash is one of the chain, so it still means the whole
    prefix up to it.
    """
    if frame["block_hashes"].null_count() == frame.height:
        return frame
    known = pl.col("block_tokens").is_not_null() & (pl.col("block_tokens") > 0) & pl.col("block_hashes").is_not_null()
    step = pl.when(known).then((KEPT_TOKENS + pl.col("block_tokens") - 1) // pl.col("block_tokens")).otherwise(1)
    full = pl.when(known).then(pl.col("prompt_tokens") // pl.col("block_tokens")).otherwise(0)
    tagged = frame.with_columns(_step=step, _full=full.clip(0), _at=pl.int_range(pl.len()), _known=known)
    # One group a step: a list is thinned with one fixed stride. Most logs have one step.
    groups = tagged.partition_by("_step", "_known", maintain_order=True)
    out = [_every(rows, rows["_step"][0]) if rows["_known"][0] else rows for rows in groups]
    whole = pl.concat(out).sort("_at") if len(out) > 1 else out[0]
    return whole.drop("_step", "_full", "_at", "_known")


def _every(rows: pl.DataFrame, step: int) -> pl.DataFrame:
    kept = pl.col("block_hashes")
    if rows.select((kept.list.len() > pl.col("_full")).any()).item():
        kept = kept.list.head(pl.col("_full"))
    if step > 1:
        kept = kept.list.slice(step - 1).list.gather_every(step)
    return rows.with_columns(kept.alias("block_hashes"), block_tokens=pl.col("block_tokens") * step)


@dataclass(frozen=True, slots=True)
class BlockIds:
    """Prompt blocks of n requests as dense ids: `ids[offset[i]:offset[i + 1]]` are request i's. Equal ids mean
    equal prefixes.
    """

    offset: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]

    @property
    def distinct(self) -> int:
        """Number of different ids; they are 0..distinct - 1."""
        return int(self.ids.max()) + 1 if len(self.ids) else 0


def dense_ids(requests: pl.DataFrame, block_tokens: int) -> BlockIds:
    """Ids of the prompt blocks of `block_tokens` tokens, numbered by first appearance.

    Hashes that are further apart than `block_tokens` are spread over the blocks that they cover; hashes that are closer
    are thinned. Hashes of different scopes never share an id. A request without hashes has no ids.

    Raises TwinError if neither of the distances divides the other.
    """
    empty = BlockIds(np.zeros(requests.height + 1, np.int64), np.zeros(0, np.int32))
    if requests.is_empty() or requests["block_hashes"].null_count() == requests.height:
        return empty
    distances = requests.filter(pl.col("block_hashes").is_not_null())["block_tokens"].unique().to_list()
    odd = [d for d in distances if d is None or (d % block_tokens and block_tokens % d)]
    if odd:
        raise TwinError("kept hashes and blocks must divide each other", value=(odd, block_tokens))
    per_hash = pl.max_horizontal(pl.col("block_tokens") // block_tokens, 1)
    stride = pl.max_horizontal(block_tokens // pl.col("block_tokens"), 1)
    covered = (pl.col("block_hashes").list.len().cast(pl.Int64) // stride) * per_hash
    counts = requests.select(covered.fill_null(0)).to_series().to_numpy()
    long = (
        requests.select(
            pl.int_range(pl.len()).alias("row"),
            pl.col("block_hash_scope").fill_null(""),
            pl.col("block_tokens"),
            stride.alias("stride"),
            per_hash.alias("per_hash"),
            pl.col("block_hashes").alias("hash"),
        )
        .filter(pl.col("hash").list.len() > 0)
        .explode("hash")
        .with_columns(at=pl.int_range(pl.len()).over("row"))
        .filter((pl.col("at") + 1) % pl.col("stride") == 0)
    )
    if long.is_empty():
        return empty
    key = ["block_hash_scope", "block_tokens", "hash"]
    first = long.select(*key, "per_hash").unique(subset=key, keep="first", maintain_order=True)
    first = first.with_columns(base=pl.col("per_hash").cum_sum() - pl.col("per_hash"))
    bases = long.join(first.select(*key, "base"), on=key, how="left", maintain_order="left")
    repeat = bases["per_hash"].to_numpy()
    start = np.repeat(bases["base"].to_numpy(), repeat)
    within = np.arange(len(start)) - np.repeat(np.cumsum(repeat) - repeat, repeat)
    offset = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return BlockIds(offset, (start + within).astype(np.int32))


def ideal_reuse(blocks: BlockIds) -> npt.NDArray[np.int64]:
    """Blocks of each request that an infinite cache would hold when it arrives, shape (n,). Requests are in order."""
    size = len(blocks.ids)
    seen_at = np.full(blocks.distinct, size, np.int64)
    np.minimum.at(seen_at, blocks.ids, np.arange(size))
    counts = np.diff(blocks.offset)
    row = np.repeat(np.arange(len(counts)), counts)
    # A block is reusable if its id came in an earlier request; chains make these a prefix of the prompt.
    known = seen_at[blocks.ids] < blocks.offset[:-1][row]
    return np.bincount(row[known], minlength=len(counts)).astype(np.int64)
