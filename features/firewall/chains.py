"""Hash chains that contradict their parents: equal hashes must stand behind equal hashes."""

from __future__ import annotations

import polars as pl

from features.quality import REASONS, Rules

SAMPLED = 16
"""One hash in so many is followed: a log whose hashes are not chained has wrong ones everywhere."""
FOLLOWED_MAX = 400_000
"""Pairs of a hash and its parent that are followed in one log; memory stays flat."""
REASONS["chain_contradicts_parent"] = (
    "a block hash stands behind another parent than in most requests of its scope: hashes are not chained, damaged, or "
    "of several models in one scope"
)
_HASH = ["block_hash_scope", "block_hashes"]
_PAIR = [*_HASH, "parent"]


class ChainEvidence:
    """How often each followed hash stood behind each parent, pairs in the order in which the log showed them."""

    def __init__(self) -> None:
        self._seen: list[pl.DataFrame] = []
        self._rows = 0

    def see(self, requests: pl.DataFrame) -> None:
        """Takes in rows of the table `requests`."""
        pairs = _followed(requests).group_by(_PAIR, maintain_order=True).agg(times=pl.len().cast(pl.Int64))
        if pairs.height:
            self._seen.append(pairs)
            self._rows += pairs.height
        if self._rows > 2 * FOLLOWED_MAX:
            self._seen = [self._pairs()]
            self._rows = self._seen[0].height

    def rules(self) -> Rules:
        """The rule of chains, if the log broke it. Most requests are believed, of as many the first."""
        if not self._seen:
            return {}
        pairs = self._pairs()
        doubtful = pairs.filter(pl.len().over(_HASH) > 1)
        if doubtful.is_empty():
            return {}
        believed = doubtful.sort("times", descending=True, maintain_order=True).unique(_HASH, keep="first")
        wrong = doubtful.join(believed, on=_PAIR, how="anti", nulls_equal=True)

        def agree(rows: pl.DataFrame) -> pl.Series:
            bad = _followed(rows).join(wrong, on=_PAIR, how="semi", nulls_equal=True)["at"]
            return ~pl.int_range(rows.height, dtype=pl.UInt32, eager=True).is_in(bad.implode())

        return {"chain_contradicts_parent": agree}

    def _pairs(self) -> pl.DataFrame:
        """Pairs once each; the first ones of the log stay, however it was cut."""
        whole = pl.concat(self._seen).group_by(_PAIR, maintain_order=True).agg(pl.col("times").sum())
        return whole.head(FOLLOWED_MAX)


def _followed(requests: pl.DataFrame) -> pl.DataFrame:
    """Followed hashes with their parents (null at the start of a prompt); `at`: number of the row."""
    return (
        requests.select("block_hash_scope", "block_hashes", at=pl.int_range(pl.len(), dtype=pl.UInt32))
        .filter(pl.col("block_hashes").list.len() > 0)
        .explode("block_hashes")
        .with_columns(parent=pl.when(pl.col("at") == pl.col("at").shift(1)).then(pl.col("block_hashes").shift(1)))
        .filter(pl.col("block_hashes") % SAMPLED == 0)
    )
