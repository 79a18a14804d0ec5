"""Hash chains that contradict their parents: equal hashes must stand behind equal hashes."""

from __future__ import annotations

import polars as pl

from features.quality import REASONS

SAMPLED = 16
"""One hash in so many is followed: a log whose hashes are not chained has wrong ones everywhere."""
FOLLOWED_MAX = 400_000
"""Hashes that are followed in one log; memory stays flat."""
REASONS["chain_contradicts_parent"] = (
    "a block hash stands behind another parent than in an earlier request of its scope: hashes are not chained, or of "
    "several models in one scope"
)
_KEY = ["block_hash_scope", "block_hashes"]


class ChainEvidence:
    """The parent of every followed hash where the log showed it first."""

    def __init__(self) -> None:
        self._first: pl.DataFrame | None = None

    def agree(self, requests: pl.DataFrame) -> pl.Series:
        """Whether each request's followed hashes have the parents that they had first. Rows come in the log's order."""
        lengths = requests["block_hashes"].list.len().fill_null(0)
        if lengths.sum() == 0:
            return pl.repeat(True, requests.height, dtype=pl.Boolean, eager=True)
        numbered = requests.select("block_hash_scope", "block_hashes", at=pl.int_range(pl.len(), dtype=pl.UInt32))
        followed = (
            numbered.filter(lengths > 0)
            .explode("block_hashes")
            .with_columns(parent=pl.when(pl.col("at") == pl.col("at").shift(1)).then(pl.col("block_hashes").shift(1)))
            .filter(pl.col("block_hashes") % SAMPLED == 0)
        )
        seen = followed.select(*_KEY, "parent")
        known = seen if self._first is None else pl.concat([self._first, seen])
        self._first = known.unique(subset=_KEY, keep="first", maintain_order=True).head(FOLLOWED_MAX)
        first = followed.join(self._first, on=_KEY, how="inner", nulls_equal=True, suffix="_first")
        wrong = first.filter(pl.col("parent").ne_missing(pl.col("parent_first")))["at"]
        return ~numbered["at"].is_in(wrong.implode())
