"""Observed engine steps of every source as training tables: for each node and phase its finest source, none twice.

Finest first: forward passes (each step by itself), times of stages (steps rebuilt from prompts' starts and ends),
counters of the engine (means between two readings), scraped metrics (means, without the number of steps), first steps
of requests (where nothing else tells of a D).
"""

from __future__ import annotations

import polars as pl

from features.first_steps import first_steps
from features.tables import decode_steps, prefill_steps

MIN_ROWS = 20
"""A finer source with fewer rows of a node does not stand in for a coarser one with this many."""
PASSES, STAGES, MOMENTS, FIRST_STEPS = "passes", "stages", "decode_moments", "first_steps"
FINEST_FIRST = (PASSES, STAGES, MOMENTS, "prefill_counters", "prometheus", FIRST_STEPS)
_PREFILL = {
    "node": pl.String,
    "started_at_us": pl.Int64,
    "busy_us": pl.Int64,
    "n_steps": pl.Int64,
    "prompts": pl.Float64,
    "new_tokens": pl.Int64,
    "sum_t2": pl.Float64,
    "sum_chunk_context": pl.Float64,
    "source": pl.String,
}
_DECODE = {
    "observed_at_us": pl.Int64,
    "node": pl.String,
    "n_steps": pl.Int64,
    "busy_us": pl.Int64,
    "sequences": pl.Float64,
    "tokens": pl.Float64,
    "drift": pl.Float64,
    "source": pl.String,
}


def prefill_table(requests: pl.DataFrame, steps: pl.DataFrame, chunk_tokens: int) -> pl.DataFrame:
    """One row a window of a node with prefill steps, sorted by start and node; columns as `tables.prefill_steps`.

    `steps`: the table of that name. `source`: one of FINEST_FIRST. A row of counters or metrics does not tell its
    steps: as many full ones are taken as its tokens need at least, of prompts without context.
    """
    staged = prefill_steps(requests, chunk_tokens).with_columns(source=pl.lit(STAGES))
    told = steps.filter(pl.col("phase") == "prefill").with_columns(source=_source(), tokens=pl.col("new_tokens"))
    single = told.filter(pl.col("source") == PASSES)
    coarse = told.filter(pl.col("source") != PASSES)
    full = (pl.col("tokens") - 1) // chunk_tokens
    last = pl.col("tokens") - full * chunk_tokens
    began = pl.col("observed_at_us") - pl.col("busy_us")
    # A prompt of a pass has its share of the pass's tokens and contexts: exact for one prompt.
    context = pl.col("tokens") * pl.col("context_tokens") / pl.col("sequences")
    return _finest(
        [
            single.with_columns(
                started_at_us=began,
                prompts=pl.col("sequences"),
                sum_t2=pl.col("tokens").cast(pl.Float64) ** 2,
                sum_chunk_context=context,
            ),
            staged,
            coarse.with_columns(
                started_at_us=began,
                n_steps=full + 1,
                prompts=pl.lit(None),
                sum_t2=full * float(chunk_tokens) ** 2 + last.cast(pl.Float64) ** 2,
                sum_chunk_context=pl.lit(0.0),
            ),
        ],
        _PREFILL,
    ).sort("started_at_us", "node", "busy_us", "new_tokens")


def decode_table(node_loads: pl.DataFrame, steps: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """One row a window of a node with decode steps, sorted by time and node; columns as `tables.decode_steps`.

    `steps`: the table of that name; its rows of decode moments are made anew from `node_loads`. A row of metrics tells
    only its time and tokens: the samples of the node at its ends tell the batch, and tokens over batch the steps. The
    first steps of requests count for nodes that nothing else tells of (features/first_steps.py).
    """
    told = steps.filter(pl.col("phase") == "decode").with_columns(source=_source(), drift=pl.lit(None, pl.Float64))
    single = told.filter(pl.col("source") == PASSES)
    coarse = told.filter(~pl.col("source").is_in([PASSES, MOMENTS]))
    joined = first_steps(requests).with_columns(source=pl.lit(FIRST_STEPS), drift=pl.lit(0.0))
    return _finest(
        [single.with_columns(drift=pl.lit(0.0)), decode_steps(node_loads), _with_batch(coarse, node_loads), joined],
        _DECODE,
    ).sort("observed_at_us", "node", "busy_us")


def _source() -> pl.Expr:
    """The name of a row's source; whatever was not derived here is a record of passes."""
    return pl.when(pl.col("source").is_in(list(FINEST_FIRST))).then(pl.col("source")).otherwise(pl.lit(PASSES))


def _with_batch(coarse: pl.DataFrame, node_loads: pl.DataFrame) -> pl.DataFrame:
    """Rows with the mean batch of the node's samples at their ends, and the steps that follow; others are left out."""
    held = pl.col("running_tokens").cast(pl.Float64).fill_null(pl.col("active_blocks") * pl.col("block_tokens"))
    batch = pl.col("running_requests").cast(pl.Float64)
    mean = [((x + x.shift(1).over("node")) / 2).alias(name) for x, name in ((batch, "sequences"), (held, "tokens"))]
    samples = (
        node_loads.sort("node", "observed_at_us", "source")
        .unique(["node", "observed_at_us"], keep="first", maintain_order=True)
        .select("node", "observed_at_us", *mean)
        .filter(pl.col("sequences") > 0)
    )
    return (
        coarse.drop("sequences", "tokens")
        .join(samples, on=["node", "observed_at_us"], how="inner")
        .with_columns(n_steps=(pl.col("new_tokens") / pl.col("sequences")).round().cast(pl.Int64).clip(lower_bound=1))
    )


def _finest(parts: list[pl.DataFrame], columns: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    """Rows of all parts, of each node only those of its finest source that has MIN_ROWS, else of its longest one."""
    every = pl.concat([part.select(pl.col(name).cast(kind) for name, kind in columns.items()) for part in parts])
    rank = pl.col("source").replace_strict({name: at for at, name in enumerate(FINEST_FIRST)}, return_dtype=pl.Int64)
    best = (
        every.group_by("node", "source")
        .len("rows")
        .with_columns(rank=rank, enough=pl.col("rows").clip(upper_bound=MIN_ROWS))
        .sort("node", "enough", "rank", descending=[False, True, False])
        .unique("node", keep="first", maintain_order=True)
    )
    return every.join(best.select("node", "source"), on=["node", "source"], how="semi")
