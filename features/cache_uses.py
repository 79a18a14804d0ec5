"""Uses of P nodes' prefix caches as a training table: which blocks a prompt has, and how many tokens P found cached."""

from __future__ import annotations

import polars as pl

COLUMNS = (
    "node", "at_us", "block_hash_scope", "block_tokens", "block_hashes", "prompt_tokens", "cached_tokens",
)  # fmt: skip


def cache_uses(requests: pl.DataFrame) -> pl.DataFrame:
    """One row a prompt with block hashes that a P computed, sorted by time and request id.

    Columns: node (the P), at_us (prefill started, else decided, else arrived), block_hash_scope, block_tokens (tokens
    between two hashes), block_hashes, prompt_tokens, cached_tokens (null = not logged: a use of the cache that tells
    nothing of it).
    """
    at = pl.coalesce("prefill_started_at_us", "decided_at_us", "arrived_at_us")
    return (
        requests.filter(
            pl.col("prefill_node").is_not_null(),
            pl.col("block_hashes").list.len() > 0,
            pl.col("block_tokens") > 0,
            ~pl.col("finish_reason").is_in(["rejected"]).fill_null(value=False),
        )
        .sort(at, "request_id")
        .select(
            node=pl.col("prefill_node"),
            at_us=at,
            block_hash_scope=pl.col("block_hash_scope"),
            block_tokens=pl.col("block_tokens"),
            block_hashes=pl.col("block_hashes"),
            prompt_tokens=pl.col("prompt_tokens"),
            cached_tokens=pl.col("prefill_cached_tokens"),
        )
    )
