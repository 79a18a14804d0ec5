"""Training tables: what estimators are fitted on, made of `requests` and `node_loads`. Times in microseconds."""

from __future__ import annotations

from dataclasses import astuple, fields

import polars as pl

from features.length_history import LENGTH_HISTORY, with_length_history
from features.prefill_runs import Prompt, Run, rows
from features.schemas import DECODE_MOMENTS

_UNFINISHED = ("rejected", "failed")
_CENSORING = ("length", "cancelled")
_RUN_COLUMNS = [field.name for field in fields(Run)]
_RUN_DTYPES = {"node": pl.String, **dict.fromkeys(_RUN_COLUMNS, pl.Int64)}


def length_table(requests: pl.DataFrame) -> pl.DataFrame:
    """One row a request that was served, sorted by arrival: what a router knows of it at arrival, and its output.

    Columns: request_id, arrived_at_us, slo_class, app, tenant, model, prompt_tokens, max_output_tokens, those of
    `features.length_history`, output_tokens, censored (the output was cut: the true length is at least output_tokens).
    Rejected and failed requests and unknown outputs are left out.
    """
    return (
        with_length_history(requests)
        .with_columns(
            censored=pl.col("finish_reason").is_in(list(_CENSORING)).fill_null(value=False),
        )
        .filter(
            pl.col("output_tokens").is_not_null(),
            ~pl.col("finish_reason").is_in(list(_UNFINISHED)).fill_null(value=False),
        )
        .select(
            "request_id",
            "arrived_at_us",
            "slo_class",
            "app",
            "tenant",
            "model",
            "prompt_tokens",
            "max_output_tokens",
            *LENGTH_HISTORY,
            "output_tokens",
            "censored",
        )
    )


def prefill_steps(requests: pl.DataFrame, chunk_tokens: int) -> pl.DataFrame:
    """One row a run of prefill steps between two times that the log gives away, sorted by start and node.

    `chunk_tokens` is the engine's budget of new tokens a step. See features/prefill_runs.py for how steps follow from
    the starts and ends of prompts; steps of a prompt whose hit is unknown are left out.

    Columns: node, started_at_us, busy_us, n_steps, prompts, new_tokens (sum of T over the steps, T = new tokens of a
    step), sum_t2 (sum of T²), sum_chunk_context (sum of chunk · tokens before the chunk), last_tokens (T of the last
    step; the others have chunk_tokens). A step's law adds up: busy = c0·n_steps + c1·new_tokens + c2·sum_t2 + c3·….
    """
    start, end = "prefill_started_at_us", "prefill_finished_at_us"
    cached = pl.col("prefill_cached_tokens").fill_null(0)
    known = requests.filter(
        pl.all_horizontal(pl.col("prefill_node", start, end).is_not_null()), pl.col(end) > pl.col(start)
    ).select(
        "prefill_node",
        start,
        end,
        pl.when(_cached_known()).then(pl.col("prompt_tokens") - cached).otherwise(0).alias("new"),
        cached.alias("cached"),
    )
    by_node: dict[str, list[Prompt]] = {}
    for node, *values in known.iter_rows():
        by_node.setdefault(node, []).append(Prompt(*values))
    found = [(node, *astuple(run)) for node, run in rows(by_node, chunk_tokens)]
    frame = pl.DataFrame(found, schema=["node", *_RUN_COLUMNS], orient="row", schema_overrides=_RUN_DTYPES)
    return frame.select(
        "node",
        pl.col("started_us").alias("started_at_us"),
        (pl.col("ended_us") - pl.col("started_us")).alias("busy_us"),
        *_RUN_COLUMNS[2:],
    ).sort("started_at_us", "node")


def _cached_known() -> pl.Expr:
    """The computed part of the prompt is known: its hit was logged, or the log says nothing about hashes at all."""
    return pl.col("prefill_cached_tokens").is_not_null() | pl.col("block_hashes").is_null()


def decode_steps(node_loads: pl.DataFrame) -> pl.DataFrame:
    """One row a D and pair of consecutive samples between which it made steps: the table `steps`, plus moments.

    busy_us, n_steps and new_tokens (generated) are differences of cumulative counters; sequences is the mean over those
    steps, context_tokens null. tokens: those sequences times the tokens of a running request in the two samples, for
    the batch between them is not the batch at them; the mean of running_tokens where running requests are not told.
    Further columns: interval_us; sequences_sq (mean of b²) and sequences_busy (mean of b·t, µs); drift, how far b
    spreads within the window and running_tokens move between the samples, relative to them. A pair across a restart (a
    counter fell) is dropped.
    """
    moment = [pl.col("decode_moments").list.get(i, null_on_oob=True).alias(f"m{i}") for i in range(DECODE_MOMENTS)]
    node = "node"
    samples = node_loads.filter(pl.col("decode_moments").is_not_null()).sort(node, "observed_at_us")
    change = [(pl.col(f"m{i}") - pl.col(f"m{i}").shift(1).over(node)).alias(f"d{i}") for i in range(DECODE_MOMENTS)]
    fell = pl.any_horizontal(pl.col(f"d{i}") < 0 for i in range(DECODE_MOMENTS))
    before_us = pl.col("observed_at_us").shift(1).over(node)
    tokens, earlier = pl.col("running_tokens"), pl.col("running_tokens").shift(1).over(node)
    requests = pl.col("running_requests") + pl.col("running_requests").shift(1).over(node)
    b = pl.col("d1") / pl.col("d0")
    spread = ((pl.col("d3") / pl.col("d0") - b * b).clip(lower_bound=0) / (b * b)).sqrt()
    return (
        samples.with_columns(moment)
        .with_columns(change)
        .with_columns(
            interval_us=pl.col("observed_at_us") - before_us,
            tokens=pl.when(requests > 0).then(b * (tokens + earlier) / requests).otherwise((tokens + earlier) / 2),
            drift=(spread.pow(2) + ((tokens - earlier) / (tokens + earlier)).fill_nan(None).pow(2)).sqrt(),
        )
        .filter((pl.col("d0") >= 1) & (pl.col("d2") >= 1) & ~fell)
        .select(
            "observed_at_us",
            node,
            pl.lit("decode").alias("phase"),
            pl.col("d0").round().cast(pl.Int64).alias("n_steps"),
            pl.col("d2").round().cast(pl.Int64).alias("busy_us"),
            (pl.col("d1") / pl.col("d0")).alias("sequences"),
            "tokens",
            pl.col("d5").round().cast(pl.Int64).alias("new_tokens"),
            pl.lit(None, pl.Float64).alias("context_tokens"),
            pl.lit("decode_moments").alias("source"),
            "interval_us",
            (pl.col("d3") / pl.col("d0")).alias("sequences_sq"),
            (pl.col("d4") / pl.col("d0")).alias("sequences_busy"),
            "drift",
        )
        .sort("observed_at_us", node)
    )
