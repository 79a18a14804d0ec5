"""The pool's report as arrays, in the order of the trace, in nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from features.readers.lines import read_lines
from features.readers.mooncake import BLOCK_TOKENS, trace_rows
from features.readers.replay_trace import ReplayedTrace
from policies.twin.workload import Workload

Int64 = npt.NDArray[np.int64]
STAGES = {
    "prefill_admit": "prefill_admit_ms",
    "source_held": "source_held_ms",
    "reserve": "destination_reserved_ms",
    "activate": "destination_activated_ms",
    "first_token": "first_token_ms",
    "last_token": "last_token_ms",
    "source_release": "source_released_ms",
}
"""Stage -> its name in the report."""
NS_PER_MS = 1e6
_COUNTS = ("input_length", "output_length", "reused_input_tokens", "prefill_worker_idx", "decode_worker_idx")
_FIELDS = {**dict.fromkeys(("arrival_time_ms", *STAGES.values()), pl.Float64()), **dict.fromkeys(_COUNTS, pl.Int64())}


@dataclass(frozen=True, slots=True)
class Logged:
    """n requests in the trace's order. `stage_ns`: stage -> (n,), nanoseconds since the replay's 0, -1 = never.

    `reused`, `prefill`, `decode`: (n,), tokens and worker indices. `workload`: what was replayed, with the workers that
    the pool chose.
    """

    workload: Workload
    stage_ns: dict[str, Int64]
    reused: Int64
    prefill: Int64
    decode: Int64

    @property
    def requests(self) -> int:
        """Number of requests."""
        return self.workload.requests


def read(report: Path, trace: Path, *, in_turn: int = 0) -> Logged:
    """The report (plain or packed) of a replay of the whole trace. ValueError if a row of it is not there, or not once.

    `in_turn`: the number of P workers, if the router took them in turn: then of rows that are alike each is the one
    whose turn it was. Otherwise nothing says which is which.
    """
    log = pl.concat([parsed.frame for parsed in read_lines(report, _FIELDS)])
    rows = trace_rows(trace)
    found, _ = ReplayedTrace(trace).complete(log)
    ordered = found.sort("row_id")
    if in_turn:
        ordered = _in_turn(ordered, in_turn)
    if ordered.height != rows.height or ordered["row_id"].n_unique() != rows.height:
        raise ValueError(f"{report} must hold every row of {trace} once, has {ordered.height} of {rows.height}")
    prompt = ordered["input_length"].to_numpy().astype(np.int32)
    hashes = rows.select(pl.col("hash_ids").list.head(pl.col("input_length") // BLOCK_TOKENS).alias("hashes"))["hashes"]
    counts = hashes.list.len().to_numpy().astype(np.int64)
    ids = hashes.explode().drop_nulls().to_numpy()
    prefill, decode = (ordered[f"{side}_worker_idx"].to_numpy().astype(np.int64) for side in ("prefill", "decode"))
    return Logged(
        workload=Workload(
            arrival_ns=_ns(ordered["arrival_time_ms"]),
            prompt_tokens=prompt,
            output_tokens=ordered["output_length"].to_numpy().astype(np.int32),
            class_index=np.zeros(len(prompt), np.int32),
            block_offset=np.concatenate([[0], np.cumsum(counts)]),
            block_ids=np.unique(ids, return_inverse=True)[1].astype(np.int32),
            forced_prefill=prefill.astype(np.int32),
            forced_decode=decode.astype(np.int32),
            scored=np.ones(len(prompt), np.bool_),
        ),
        stage_ns={stage: _ns(ordered[name]) for stage, name in STAGES.items()},
        reused=ordered["reused_input_tokens"].to_numpy().astype(np.int64),
        prefill=prefill,
        decode=decode,
    )


def _in_turn(ordered: pl.DataFrame, workers: int) -> pl.DataFrame:
    """Rows of which some are alike, these exchanged until each is on the worker whose turn it was."""
    alike = ["arrival_time_ms", "input_length", "output_length"]
    places = ordered.with_row_index("at").filter(pl.len().over(alike) > 1)
    order = np.arange(ordered.height)
    for group in places.partition_by(alike, maintain_order=True):
        turns, held = group["at"] % workers, group["prefill_worker_idx"]
        order[group["at"].to_numpy()[turns.arg_sort()]] = group["at"].to_numpy()[held.arg_sort()]
    moved = [name for name in ordered.columns if name not in ("row_id", "block_hashes")]
    return ordered.with_columns(ordered[order.tolist()].select(moved))


def _ns(ms: pl.Series) -> Int64:
    return np.rint(ms.fill_null(-1 / NS_PER_MS).to_numpy() * NS_PER_MS).astype(np.int64)
