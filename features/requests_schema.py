"""The table `requests`: one row a request, from arrival to its last token."""

# ruff: noqa: N805  (dataframely calls its rules with the class)
from __future__ import annotations

import dataframely as dy
import polars as pl

from features.columns import at_most, count, in_order, one_of, text, time, tokens

FINISH_REASONS = ("stop", "length", "cancelled", "rejected", "failed")


class Requests(dy.Schema):
    """One row a request. `block_tokens`: tokens between two kept hashes of `block_hashes` (full blocks only).

    `arrival_spread_us`: the log's clock ticked this coarsely and the arrival was spread inside its tick; else null.
    """

    request_id = text(nullable=False, primary_key=True)
    pool = text(nullable=False)
    arrived_at_us = time(nullable=False)
    arrival_spread_us = count(minimum=1)
    slo_class = text()
    priority = dy.Int64(nullable=True)
    deadline_us = time()
    tenant = text()
    app = text()
    session_id = text()
    parent_request_id = text()
    model = text()
    prompt_tokens = tokens(nullable=False, minimum=1)
    output_tokens = tokens()
    max_output_tokens = tokens()
    finish_reason = dy.String(nullable=True)
    block_tokens = tokens(minimum=1)
    block_hashes = dy.List(dy.UInt64(), nullable=True)
    block_hash_scope = text()
    prefill_cached_tokens = count()
    cached_tier = text()
    decode_resident_tokens = count()
    router_id = text()
    policy_version = text()
    decided_at_us = time()
    prefill_node = text()
    decode_node = text()
    prefill_started_at_us = time()
    prefill_finished_at_us = time()
    transfer_started_at_us = time()
    transfer_finished_at_us = time()
    decode_admitted_at_us = time()
    first_token_at_us = time()
    finished_at_us = time()
    transferred_bytes = count()
    transfer_descriptors = count()
    preemptions = count()
    source = text()
    source_file = text()
    source_row = count(minimum=1)

    @dy.rule()
    def finish_reason_known(cls) -> pl.Expr:
        """`finish_reason` is one of FINISH_REASONS."""
        return one_of("finish_reason", FINISH_REASONS)

    @dy.rule()
    def cached_within_prompt(cls) -> pl.Expr:
        """Cached and resident tokens are part of the prompt."""
        return at_most("prefill_cached_tokens", "prompt_tokens") & at_most("decode_resident_tokens", "prompt_tokens")

    @dy.rule()
    def hashes_have_block_size(cls) -> pl.Expr:
        """Hashes come with the tokens between two of them."""
        return pl.col("block_hashes").is_null() | pl.col("block_tokens").is_not_null()

    @dy.rule()
    def hashes_within_prompt(cls) -> pl.Expr:
        """Hashes cover full blocks of the prompt only."""
        covered = pl.col("block_hashes").list.len().cast(pl.Int64) * pl.col("block_tokens")
        return (covered <= pl.col("prompt_tokens")).fill_null(value=True)

    @dy.rule()
    def router_times_in_order(cls) -> pl.Expr:
        """The router's own times are in order."""
        return in_order("arrived_at_us", "decided_at_us", "first_token_at_us", "finished_at_us")

    @dy.rule()
    def prefill_times_in_order(cls) -> pl.Expr:
        """P's times are in order."""
        return in_order("prefill_started_at_us", "prefill_finished_at_us")

    @dy.rule()
    def transfer_times_in_order(cls) -> pl.Expr:
        """The transfer's times are in order."""
        return in_order("transfer_started_at_us", "transfer_finished_at_us")
