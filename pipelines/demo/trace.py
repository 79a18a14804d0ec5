"""A real trace in Mooncake format as traffic: consecutive slices stand for consecutive days."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from features.errors import SourceError
from features.readers.base import ReadContext
from features.readers.registry import reader_named
from policies.twin.traffic import DayTraffic

EPOCH_US = 1_700_000_000_000_000
"""Any wall time: only differences of arrivals are used."""


def trace_traffic(path: Path, *, slices: int, speed_up: float) -> tuple[DayTraffic, ...]:
    """The trace in `slices` parts of equal request counts, arrivals `speed_up` times faster, each part from 0.

    The reader spreads arrivals that share a coarse tick: bursts of the trace's clock would decide the load. Prefixes
    are the trace's own. Raises SourceError if the file is no such trace or too short.
    """
    frame = _read(path)
    if slices < 1 or len(frame) < 2 * slices:
        raise SourceError("each slice must have at least two requests", value=(len(frame), slices), place=str(path))
    at_s = (frame["arrived_at_us"].to_numpy() - EPOCH_US) / 1e6
    order = np.argsort(at_s, kind="stable")
    at_s, frame = at_s[order] / speed_up, frame[order.tolist()]
    return tuple(_slice(at_s[part], frame[part.tolist()]) for part in np.array_split(np.arange(len(frame)), slices))


def _read(path: Path) -> pl.DataFrame:
    if not path.is_file():
        raise SourceError("a trace file must exist", value=str(path))
    batches = reader_named("mooncake").read(path, ReadContext("trace", path.name, EPOCH_US))
    frames = [b.frame for b in batches if b.frame.height]
    if not frames:
        raise SourceError("a trace must have readable rows", place=str(path))
    return pl.concat(frames).filter(
        pl.col("prompt_tokens") >= 1, pl.col("output_tokens") >= 1, pl.col("block_hashes").is_not_null()
    )


def _slice(at_s: np.ndarray, frame: pl.DataFrame) -> DayTraffic:
    prompt = frame["prompt_tokens"].to_numpy().astype(np.int64)
    full = np.minimum(prompt // frame["block_tokens"].to_numpy(), frame["block_hashes"].list.len().to_numpy())
    kept = frame.with_columns(pl.Series("full", full)).select(pl.col("block_hashes").list.head(pl.col("full")))
    hashes = kept["block_hashes"].explode(empty_as_null=False).to_numpy().astype(np.uint64)
    nothing = np.full(len(prompt), -1, np.int64)
    return DayTraffic(
        arrival_s=at_s - at_s[0],
        prompt_tokens=prompt,
        output_tokens=frame["output_tokens"].to_numpy().astype(np.int64),
        app=np.zeros(len(prompt), np.int64),
        session=nothing,
        turn=nothing,
        hash_offset=np.concatenate([[0], np.cumsum(full)]).astype(np.int64),
        hashes=hashes,
    )
