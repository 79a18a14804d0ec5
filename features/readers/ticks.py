"""Coarse clocks: arrivals that share a tick are spread inside it.

A trace whose clock ticks every few seconds puts all arrivals of a tick at one instant, which no router would ever see.
They are drawn uniformly inside their tick and sorted, so the order of the log stays. The draws depend on the line
numbers only: the same file gives the same times, however it is cut into chunks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from features.readers.base import Batch
from features.readers.lines import ROW

PROBE_ROWS = 20_000
"""Rows at the start of a log that show whether its clock is coarse."""
_TICKS_MIN = 4
_WIDTH_MIN_US = 100_000
_SHARED_MIN = 0.5
_REGULAR_MIN = 0.9
_JITTER = 0.05
_TIME, _SPREAD = "arrived_at_us", "arrival_spread_us"


def spread_ticks(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Batches of requests with `arrival_spread_us`: the width of the row's tick, null where the clock is fine.

    A clock is coarse if, in the first PROBE_ROWS rows, at least half of the rows repeat the time before them and the
    others are regular ticks of 0.1 s or more. The last tick of a batch waits for the next one, since it may go on
    there; a log that grows can move arrivals of what was its last tick.
    """
    probe: list[Batch] = []
    for batch in batches:
        probe.append(batch)
        if sum(held.frame.height for held in probe) >= PROBE_ROWS:
            break
    times = [held.frame[_TIME] for held in probe]
    width = tick_width_us(pl.concat(times).head(PROBE_ROWS)) if times else None
    if width is None:
        for batch in _chained(probe, batches):
            yield Batch(batch.frame.with_columns(pl.lit(None, pl.Int64).alias(_SPREAD)), batch.bad, batch.skipped)
        return
    waiting: pl.DataFrame | None = None
    for batch in _chained(probe, batches):
        frame = batch.frame if waiting is None else pl.concat([waiting, batch.frame])
        last = frame[_TIME].rle_id() == frame[_TIME].rle_id().max() if frame.height else pl.Series([], dtype=pl.Boolean)
        waiting = frame.filter(last)
        following = waiting[_TIME].head(1).item() if waiting.height else None
        yield Batch(_spread(frame.filter(~last), width, following), batch.bad, batch.skipped)
    if waiting is not None and waiting.height:
        yield Batch(_spread(waiting, width, None))


def tick_width_us(times: pl.Series) -> int | None:
    """Width of a coarse clock's ticks, None if `times` (in log order) do not show one."""
    known = times.drop_nulls().to_numpy()
    if len(known) < 2:
        return None
    steps = np.diff(known)
    gaps = steps[steps > 0]
    if len(gaps) < _TICKS_MIN - 1 or (steps == 0).mean() < _SHARED_MIN:
        return None
    # Ticks without an arrival make gaps of several widths; most are one.
    width = float(np.quantile(gaps, 0.25, method="lower"))
    ratio = gaps / width
    regular = np.abs(ratio - np.round(ratio)) <= _JITTER * np.round(ratio)
    return round(width) if width >= _WIDTH_MIN_US and regular.mean() >= _REGULAR_MIN else None


def _spread(frame: pl.DataFrame, width: int, following: int | None) -> pl.DataFrame:
    """Whole ticks with spread times. `following`: time of the tick after the last."""
    time = pl.col(_TIME)
    starts = frame.select(time, time.rle_id().alias("_tick")).unique("_tick", keep="first", maintain_order=True)
    gap = time.shift(-1, fill_value=following) - time
    # A tick ends where the next one starts, if that is earlier than its width says.
    room = pl.when((gap > 0) & (gap < width)).then(gap).otherwise(width)
    rooms = starts.select("_tick", room.alias(_SPREAD))
    drawn = frame.with_columns(
        time.rle_id().alias("_tick"), pl.Series("_draw", _uniform(frame[ROW].to_numpy()), dtype=pl.Float64)
    ).with_columns(pl.col("_draw").sort().over("_tick"))
    joined = drawn.join(rooms, on="_tick", how="left", maintain_order="left")
    known = joined.with_columns(pl.when(time.is_not_null()).then(_SPREAD).alias(_SPREAD))
    return known.with_columns(time + (pl.col("_draw") * pl.col(_SPREAD)).floor().cast(pl.Int64)).drop("_tick", "_draw")


def _uniform(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each line number, mixed as splitmix64 mixes its counter."""
    mixed = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def _chained(first: list[Batch], rest: Iterator[Batch]) -> Iterator[Batch]:
    while first:
        yield first.pop(0)
    yield from rest
