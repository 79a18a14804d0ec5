"""Requests of a window as the traffic that the twin replays, with the traffic before it as warm-up.

What becomes of a request that did not end well:

- rejected: it was demand, so it is replayed; its length is unknown and stands at the estimated median. A replay of the
  log's own placements leaves it out: it never reached a node.
- failed: the same; a replay of the log's own placements keeps it if a P had started it.
- cancelled: load up to the tokens that were made, at least one, but its client was gone: it does not count. It is left
  out if no P had started it.
- without a known length (or 0 tokens): the estimated median.

Routers of the replay know of a request what the log's routers could know, and learn from answers of known length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import SettingsError
from features.lake import Lake
from features.length_history import with_length_history
from features.naming import DEFAULT_CLASS
from features.prefix import dense_ids
from models.portable.length import LengthLaw
from models.splits import Window
from pipelines.night.arrivals import arrivals
from pipelines.night.inputs import Inputs
from pipelines.settings import Pool
from policies.evidence.fidelity import Logged
from policies.lengths import expected_output
from policies.twin.cluster import Cluster
from policies.twin.workload import Int32, Workload

_US_PER_S = 1_000_000
_NS_PER_US = 1_000


@dataclass(frozen=True, slots=True)
class WindowTraffic:
    """A window's workload and what the log says of its requests, in one order.

    `counts`: kind of request -> how many, warm-up included: scored, warm_up, cancelled, estimated_length,
    left_out, forced.
    """

    workload: Workload
    logged: Logged
    counts: Mapping[str, int]


def window_traffic(
    lake: Lake, pool: Pool, inputs: Inputs, window: Window, lengths: LengthLaw, *, forced: bool = False
) -> WindowTraffic:
    """The traffic of a window after `pool.warm_up_s` of the traffic before it. `forced`: at the log's own pairs.

    Raises SettingsError for a class of the log that the settings do not describe.
    """
    rows = pl.concat([*_warm_up(lake, pool, inputs, window), _slice(lake, pool, window, 0, scored=True)])
    rows = rows.sort("replay_at_us", "request_id")
    kept = rows.filter(kept_rows(forced=forced))
    estimated = kept.select(length_unknown(forced=forced)).to_series().to_numpy()
    workload = to_workload(kept, estimated, pool, inputs.cluster, forced=forced)
    workload = replace(workload, output_tokens=known_lengths(estimated, workload, pool, lengths))
    counts = {
        "scored": int(workload.scored.sum()),
        "warm_up": int((~kept["in_window"]).sum()),
        "cancelled": int((kept["finish_reason"] == "cancelled").sum() or 0),
        "estimated_length": int(estimated.sum()),
        "left_out": rows.height - kept.height,
        "forced": int((workload.forced_prefill >= 0).sum()),
    }
    return WindowTraffic(workload, _logged(kept), counts)


def _warm_up(lake: Lake, pool: Pool, inputs: Inputs, window: Window) -> Iterator[pl.DataFrame]:
    """Rows before the window that add up to `warm_up_s` of traffic, the nearest first; their days move up to it.

    A gap between two days' traffic is kept up to the longest request: then the pool has drained, and more of it would
    only cost time. Days across a break are no part of the history.
    """
    rest_us = round(pool.warm_up_s * _US_PER_S)
    end_us, shift_us = window.start_us, 0
    days = [d for d in inputs.days if d <= window.day]
    for at in reversed(range(len(days))):
        if rest_us <= 0:
            return
        first_us, _ = inputs.traffic[days[at]]
        start_us = max(first_us, end_us - rest_us)
        if start_us < end_us:
            yield _slice(lake, pool, Window(days[at], start_us, end_us), shift_us, scored=False)
            rest_us -= end_us - start_us
        if at:
            earlier_us = inputs.traffic[days[at - 1]][1] + 1
            shift_us += max(0, first_us - earlier_us - inputs.embargo_us)
            end_us = earlier_us


def _slice(lake: Lake, pool: Pool, window: Window, shift_us: int, *, scored: bool) -> pl.DataFrame:
    """The requests that arrived within a window; `replay_at_us` is when they arrive in the replay."""
    return (
        with_length_history(lake.read("requests", window.day, pool.name))
        .filter(pl.col("arrived_at_us").is_between(window.start_us, window.end_us, closed="left"))
        .with_columns(replay_at_us=pl.col("arrived_at_us") + shift_us, in_window=pl.lit(scored))
    )


def _reason(*names: str) -> pl.Expr:
    return pl.col("finish_reason").is_in(names).fill_null(value=False)


def kept_rows(*, forced: bool) -> pl.Expr:
    """Requests that are replayed, as the module's head says."""
    started = pl.col("prefill_started_at_us").is_not_null()
    kept = ~_reason("cancelled") | started
    return kept & (~_reason("rejected", "failed") | started) if forced else kept


def length_unknown(*, forced: bool) -> pl.Expr:
    """Requests whose output length stands at the estimate."""
    unknown = pl.col("output_tokens").fill_null(0) < 1
    return (
        (unknown & ~_reason("cancelled"))
        if forced
        else (unknown & ~_reason("cancelled")) | _reason("rejected", "failed")
    )


def to_workload(
    kept: pl.DataFrame, estimated: npt.NDArray[np.bool_], pool: Pool, cluster: Cluster, *, forced: bool
) -> Workload:
    """Requests with their length history, sorted by `replay_at_us`; `estimated`: whose output length is unknown.

    Raises SettingsError for a class that the settings do not describe.
    """
    n = kept.height
    blocks = dense_ids(kept, cluster.block_tokens)
    at_us = kept["replay_at_us"].to_numpy()
    free = np.full(n, -1, np.int32)
    prefill = _index(kept["prefill_node"], [x.name for x in cluster.prefill]) if forced else free
    decode = _index(kept["decode_node"], [x.name for x in cluster.decode]) if forced else free
    whole = (prefill >= 0) & (decode >= 0)
    index = _classes(kept["slo_class"], pool)
    cancelled = kept.select(_reason("cancelled")).to_series().to_numpy()
    scored = kept["in_window"].to_numpy() & ~cancelled
    return Workload(
        arrival_ns=((at_us - at_us[0]) * _NS_PER_US).astype(np.int64) if n else np.zeros(0, np.int64),
        prompt_tokens=kept["prompt_tokens"].to_numpy().astype(np.int32),
        output_tokens=np.maximum(kept["output_tokens"].fill_null(1).to_numpy(), 1).astype(np.int32),
        class_index=index,
        block_offset=blocks.offset,
        block_ids=blocks.ids,
        forced_prefill=np.where(whole, prefill, -1).astype(np.int32),
        forced_decode=np.where(whole, decode, -1).astype(np.int32),
        scored=scored.astype(np.bool_),
        request_ids=tuple(kept["request_id"].to_list()),
        arrivals=arrivals(kept, ~cancelled & ~estimated),
        priority=priorities(pool, index),
    )


def priorities(pool: Pool, class_index: Int32) -> Int32 | None:
    """Priority of each request's class; None where all classes have the same."""
    by_class = np.array([pool.priority.get(c.name, 0) for c in pool.classes], np.int32)
    return by_class[class_index] if len(set(by_class.tolist())) > 1 else None


def known_lengths(estimated: npt.NDArray[np.bool_], workload: Workload, pool: Pool, lengths: LengthLaw) -> Int32:
    """Logged output tokens; where they are unknown the median that a router expects, at least what was made."""
    if not estimated.any():
        return workload.output_tokens
    median = expected_output(lengths, [c.name for c in pool.classes], workload)
    return np.where(estimated, np.maximum(median, workload.output_tokens), workload.output_tokens).astype(np.int32)


def _classes(names: pl.Series, pool: Pool) -> Int32:
    known = {c.name: index for index, c in enumerate(pool.classes)}
    found = names.fill_null(DEFAULT_CLASS)
    for name in found.unique(maintain_order=True):
        if name not in known:
            raise SettingsError(
                "every class of the logs must be described in the settings",
                value=name,
                place=f"pools.{pool.name}.classes",
                hint=f"the settings describe {', '.join(known)}",
            )
    return found.replace_strict(known, return_dtype=pl.Int32).to_numpy().astype(np.int32)


def _index(names: pl.Series, nodes: list[str]) -> Int32:
    """Place of each name among `nodes`, -1 where it is unknown or none of them."""
    places = {name: index for index, name in enumerate(nodes)}
    return names.replace_strict(places, default=-1, return_dtype=pl.Int32).fill_null(-1).to_numpy().astype(np.int32)


def _logged(kept: pl.DataFrame) -> Logged:
    """Seconds and tokens of requests that ended by themselves, NaN for all others and where a time is unknown."""
    ended = ~_reason("cancelled", "rejected", "failed") & pl.col("finished_at_us").is_not_null()
    first, last, more = pl.col("first_token_at_us"), pl.col("finished_at_us"), pl.col("output_tokens") - 1
    frame = kept.select(
        ttft=pl.when(ended).then((first - pl.col("arrived_at_us")) / _US_PER_S),
        tpot=pl.when(ended & (more > 0))
        .then((last - first) / _US_PER_S / more)
        .when(ended & first.is_not_null())
        .then(0.0),
        cached=pl.col("prefill_cached_tokens").cast(pl.Float64),
    ).fill_null(float("nan"))
    return Logged(*(frame[name].cast(pl.Float64).to_numpy().astype(np.float64) for name in ("ttft", "tpot", "cached")))
