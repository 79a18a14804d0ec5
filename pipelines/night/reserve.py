"""The safety reserve: blocks by which a D turned out fuller than its router could know.

Between a sample and the last decision that uses it lie at most the telemetry's period and delay. Over that time a
router knows its own bookings; what the D held beyond them is growth of running answers less what finished.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from features.lake import Lake
from features.length_history import with_length_history
from models.portable.length import LengthLaw
from pipelines.night.arrivals import each_arrival
from pipelines.night.inputs import DayLogs, Inputs, read_day
from pipelines.settings import Pool

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

QUANTILE = 0.95
MIN_SAMPLES = 100
_HELD = ("active_blocks", "reserved_blocks", "inflight_blocks")


def safety_reserve(lake: Lake, pool: Pool, inputs: Inputs, lengths: LengthLaw) -> float:
    """The 0.95 quantile, over D and samples of the train windows, of realised - booked blocks, at least 0.

    realised = change of the blocks that a D holds (active, reserved and inflight, as far as its samples tell them) from
    a sample to the first one that is a period and a delay later; booked = what a router books for the prompts that D
    reserved in between. 0 where routers see the live state or fewer than 100 pairs of samples are there.
    """
    horizon_us = (pool.router.period_ns + pool.router.delay_ns) // 1000
    if pool.router.period_ns == 0:
        return 0.0
    errors: list[Float64] = []
    for window in inputs.split.train:
        logs = read_day(lake, pool, window.day)
        for times, held, booked_at, booked in _by_node(logs, pool, lengths):
            inside = (times >= window.start_us) & (times < window.end_us)
            errors.append(_errors(times[inside], held[inside], booked_at, booked, horizon_us))
    found = np.concatenate(errors) if errors else np.zeros(0)
    if len(found) < MIN_SAMPLES:
        return 0.0
    return float(max(0.0, np.ceil(np.quantile(found, QUANTILE))))


def _by_node(logs: DayLogs, pool: Pool, lengths: LengthLaw) -> Iterator[tuple[Int64, Float64, Int64, Float64]]:
    """Per D: sample times, blocks held, and times and blocks of what was reserved on it. Times ascend."""
    loads = logs.node_loads.filter(pl.col("role") == "decode")
    known = [name for name in _HELD if loads[name].null_count() < loads.height]
    if not known:
        return
    held = pl.sum_horizontal(known) * pl.col("block_tokens") / pool.kv.block_tokens
    samples = loads.filter(pl.all_horizontal(pl.col(known).is_not_null())).select("node", "observed_at_us", held=held)
    reserved = _bookings(logs.requests, pool, lengths)
    for (node,), rows in sorted(samples.sort("node", "observed_at_us").partition_by("node", as_dict=True).items()):
        mine = reserved.filter(pl.col("decode_node") == node)
        yield (
            rows["observed_at_us"].to_numpy(),
            rows["held"].cast(pl.Float64).to_numpy(),
            mine["transfer_started_at_us"].to_numpy(),
            mine["blocks"].cast(pl.Float64).to_numpy(),
        )


def _bookings(requests: pl.DataFrame, pool: Pool, lengths: LengthLaw) -> pl.DataFrame:
    """Requests that a D reserved, by that time, with the blocks that a router books for them."""
    level = {c.name: c.quantile for c in pool.classes}
    rows = (
        with_length_history(requests)
        .filter(
            pl.col("decode_node").is_not_null(),
            pl.col("transfer_started_at_us").is_not_null(),
            pl.col("slo_class").is_in(list(level)),
        )
        .sort("transfer_started_at_us", "request_id")
    )
    b = pool.kv.block_tokens
    blocks = [
        -(-(a.prompt_tokens + math.ceil(lengths.quantile(a, level[a.slo_class]))) // b) for a in each_arrival(rows)
    ]
    return rows.select("decode_node", "transfer_started_at_us", blocks=pl.Series(blocks, dtype=pl.Int64))


def _errors(times: Int64, held: Float64, booked_at: Int64, booked: Float64, horizon_us: int) -> Float64:
    """realised - booked from each sample to the first one at least `horizon_us` later."""
    later = np.searchsorted(times, times + horizon_us, side="left")
    use = later < len(times)
    start, end = np.flatnonzero(use), later[use]
    total = np.concatenate([[0.0], np.cumsum(booked)])
    until, since = (np.searchsorted(booked_at, times[at], side="right") for at in (end, start))
    found: Float64 = held[end] - held[start] - (total[until] - total[since])
    return found
