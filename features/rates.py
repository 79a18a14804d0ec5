"""How fast a D's KV grows and is given back, from its samples and the requests that were placed on it."""

from __future__ import annotations

import polars as pl

_MICROSECONDS = 1_000_000


def kv_rates(node_loads: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """One row a D and sample after its first: blocks a second since the sample before. Sorted by sample and node.

    Columns: observed_at_us, node, interval_us, admitted_blocks, growth_blocks_per_s, release_blocks_per_s, with
    growth = change of generated tokens / block size and release = admitted + growth - change of active blocks, at least
    0; admitted = blocks of the prompts that joined D's batch in between. A rate is null where a counter is unknown or
    fell (a restart), release also where the requests do not say when they joined.
    """
    sampled = node_loads.filter(pl.col("role").is_null() | (pl.col("role") != "prefill")).sort("node", "observed_at_us")
    # Two sources count by clocks and units of their own: differences are taken within one.
    series = [name for name in ("node", "source") if name in node_loads.columns]
    before = {
        name: pl.col(name).shift(1).over(series) for name in ("observed_at_us", "generated_tokens", "active_blocks")
    }
    steps = sampled.select(
        "observed_at_us",
        "node",
        "block_tokens",
        (pl.col("observed_at_us") - before["observed_at_us"]).alias("interval_us"),
        (pl.col("generated_tokens") - before["generated_tokens"]).alias("generated"),
        (pl.col("active_blocks") - before["active_blocks"]).alias("change_blocks"),
    ).filter(pl.col("interval_us") > 0)
    growth = pl.when(pl.col("generated") >= 0).then(pl.col("generated") / pl.col("block_tokens"))
    release = (pl.col("admitted_blocks") + pl.col("grown_blocks") - pl.col("change_blocks")).clip(0)
    seconds = pl.col("interval_us") / _MICROSECONDS
    return (
        _admitted(steps, requests)
        .with_columns(grown_blocks=growth)
        .select(
            "observed_at_us",
            "node",
            "interval_us",
            "admitted_blocks",
            (pl.col("grown_blocks") / seconds).alias("growth_blocks_per_s"),
            (release / seconds).alias("release_blocks_per_s"),
        )
        .sort("observed_at_us", "node")
    )


def _admitted(steps: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """`steps` with the blocks of the prompts that joined within (sample before, sample]; null if no request says so."""
    joined = requests.filter(pl.col("decode_node").is_not_null(), pl.col("decode_admitted_at_us").is_not_null())
    if joined.is_empty():
        return steps.with_columns(admitted_blocks=pl.lit(None, pl.Int64))
    owned = (
        joined.select("decode_admitted_at_us", "prompt_tokens", node="decode_node")
        .sort("decode_admitted_at_us")
        .join_asof(
            steps.select("node", "observed_at_us", "interval_us", "block_tokens").sort("observed_at_us"),
            left_on="decode_admitted_at_us",
            right_on="observed_at_us",
            by="node",
            strategy="forward",
            check_sortedness=False,  # both sides are sorted just above
        )
        .filter(pl.col("decode_admitted_at_us") > pl.col("observed_at_us") - pl.col("interval_us"))
        .group_by("node", "observed_at_us")
        .agg(
            ((pl.col("prompt_tokens") + pl.col("block_tokens") - 1) // pl.col("block_tokens"))
            .sum()
            .alias("admitted_blocks")
        )
    )
    whole = steps.join(owned, on=["node", "observed_at_us"], how="left", maintain_order="left")
    return whole.with_columns(pl.col("admitted_blocks").fill_null(0))
