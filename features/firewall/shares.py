"""Logs that measured a part and call it the whole: bytes of one rank, the time of the last chunk."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from features.firewall.facts import PoolFacts
from features.quality import REASONS, Rules

REQUESTS_MIN = 20
SHARE_MIN = 0.9
"""Part of a log's transfers that must show the same share before it is believed."""
NEAR = 0.02
PAGE_TOKENS = 64
"""KV moves in whole blocks: up to so many tokens more than there are."""
MANY_PAGES = 8
CHUNK_TOKENS = 8192
"""A step's budget where the settings do not say: the largest usual one."""
LONG, TOO_FAST = 4, 3.0
"""Prompts of so many chunks are long; computing them so many times faster a token than one chunk is not possible."""
USUAL_BEST = 0.9
"""Quantile of the speeds of one chunk: most share a step with others and look slower than the node is."""
_KEPT = 4_096

REASONS["transfer_bytes_per_rank"] = "the bytes are those of one tensor-parallel rank, not of the whole KV"
REASONS["prefill_last_chunk_only"] = "the time is that of the last chunk: long prompts are too fast for their chunks"


class ShareEvidence:
    """What the requests of a log say about whole and part. Memory: a few thousand rows."""

    def __init__(self, facts: PoolFacts) -> None:
        self._facts = facts
        self._chunk = facts.chunk_tokens or CHUNK_TOKENS
        self._ranks = facts.tensor_parallel or 1
        self._transfers = self._parts = 0
        self._prefills: pl.DataFrame | None = None

    def see(self, requests: pl.DataFrame) -> None:
        """Takes in rows of the table `requests`."""
        if self._facts.kv_bytes_per_token is not None and self._ranks > 1:
            # Of a few blocks a share cannot be told from what is rounded up.
            many = requests.filter(MANY_PAGES * PAGE_TOKENS <= _MOVED, pl.col("transferred_bytes") > 0)
            self._transfers += many.height
            self._parts += int(many.select(self._of_one_rank().sum()).item())
        if self._prefills is None or self._prefills.height < _KEPT:
            # In batches of any size: what is kept of a log must not depend on how it was cut.
            timed = requests.select("prefill_node", new=_NEW, took_us=_TOOK).drop_nulls().filter(pl.col("took_us") > 0)
            held = timed if self._prefills is None else pl.concat([self._prefills, timed])
            self._prefills = held.head(_KEPT)

    def rules(self) -> Rules:
        """Rules that this log has shown to need; none for most logs."""
        found: dict[str, Callable[[pl.DataFrame], pl.Series]] = {}
        if self._parts >= max(REQUESTS_MIN, SHARE_MIN * self._transfers):
            whole_kv = ~(self._of_one_rank() & (pl.col("transferred_bytes") > 0) & (_MOVED > 0))
            found["transfer_bytes_per_rank"] = lambda rows: rows.select(holds=whole_kv)["holds"]
        nodes = self._last_chunk_nodes()
        if nodes:
            whole = ~(pl.col("prefill_node").is_in(nodes) & (self._chunk < _NEW))
            found["prefill_last_chunk_only"] = lambda rows: rows.select(holds=whole)["holds"]
        return found

    def _of_one_rank(self) -> pl.Expr:
        """The logged bytes are a rank's share of the KV that had to move."""
        as_tokens = pl.col("transferred_bytes") * self._ranks / (self._facts.kv_bytes_per_token or 1.0)
        return as_tokens.is_between(_MOVED * (1 - NEAR), _MOVED * (1 + NEAR) + PAGE_TOKENS)

    def _last_chunk_nodes(self) -> list[str]:
        if self._prefills is None:
            return []
        speed = pl.col("new") / pl.col("took_us")
        one = pl.col("new").is_between(self._chunk // 4, self._chunk)
        many = pl.col("new") > LONG * self._chunk
        by_node = self._prefills.group_by("prefill_node").agg(
            speed.filter(one).quantile(USUAL_BEST, "nearest").alias("one"),
            speed.filter(many).median().alias("many"),
            pl.min_horizontal(one.sum(), many.sum()).alias("rows"),
        )
        slow = by_node.filter(pl.col("rows") >= REQUESTS_MIN, pl.col("many") > TOO_FAST * pl.col("one"))
        return slow["prefill_node"].sort().to_list()


_MOVED = pl.col("prompt_tokens") - pl.col("decode_resident_tokens").fill_null(0)
_NEW = pl.col("prompt_tokens") - pl.col("prefill_cached_tokens")
_TOOK = pl.col("prefill_finished_at_us") - pl.col("prefill_started_at_us")
