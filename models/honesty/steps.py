"""Steps and transfers: how far predicted times were off, by node, path and port, and by load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from features.errors import ModelError
from models.columns import names, numeric, require
from models.honesty.blocks import estimate, median
from models.honesty.reading import ALL, Reading, known
from models.metrics import BoolArray, FloatArray
from models.portable import arrays
from models.portable.steps import StepLaw, StepLaws, Tail
from models.portable.transfer import PATHS, TransferLaw, egress, ingress, uplink

PREFILL, DECODE, TRANSFER = "prefill", "decode", "transfer"
NODE_MARGIN, BAND_MARGIN, PORT_MARGIN, TAIL_MARGIN = 0.05, 0.10, 0.10, 0.05
"""How far a median error (of a node or path, of a band of load, of a port) or the coverage of a tail may lie off."""
MIN_ROWS = 30
TAIL_LEVEL = 0.9
_EDGES = {
    PREFILL: (256, 512, 1024, 2048, 4096, 8192, 16384),
    DECODE: (2, 4, 8, 16, 32, 64, 128, 256, 512),
    TRANSFER: (10**6, 10**7, 10**8, 10**9, 10**10),
}
"""Bands of load, the same every night: new tokens of a step, running sequences, bytes."""


@dataclass(frozen=True, slots=True)
class Times:
    """Predicted and seen seconds of n rows in time order. `size`: their load. `tail`: predicted 0.9 quantile, None
    where the law has none. `groups`: names of the groups that each row counts to, by kind of group.
    """

    estimator: str
    predicted: FloatArray
    seen: FloatArray
    size: FloatArray
    at_us: FloatArray
    tail: FloatArray | None
    groups: tuple[tuple[str, ...], ...]


def prefill_times(laws: StepLaws, frame: pl.DataFrame) -> Times:
    """Windows of prefill steps: `node, started_at_us, n_steps, busy_us, new_tokens, sum_chunk_context`, and where they
    are known `prompts` (one a step where not) and `last_tokens` (T of the last step of the window).

    All steps but the last are taken for equal, and so are all of them where `last_tokens` is unknown.
    """
    columns = ("node", "started_at_us", "n_steps", "busy_us", "new_tokens", "sum_chunk_context")
    require(frame, columns, table="prefill_steps")
    rows = frame.filter(pl.col("n_steps") >= 1, pl.col("busy_us") > 0, pl.col("new_tokens") > 0)
    rows = rows.drop_nulls(list(columns)).sort("started_at_us", "node", "busy_us", "new_tokens")
    steps, busy, tokens, context = (numeric(rows, name, table="prefill_steps", least=0.0) for name in columns[2:])
    mean = tokens / steps
    prompts = numeric(rows, "prompts", table="prefill_steps", least=0.0) if "prompts" in rows.columns else steps
    prompts = np.where(np.isnan(prompts), steps, np.maximum(prompts, steps))
    last = numeric(rows, "last_tokens", table="prefill_steps", least=0.0) if "last_tokens" in rows.columns else mean
    last = np.where(np.isnan(last) | (steps < 2), mean, last)
    full = np.where(steps < 2, mean, (tokens - last) / np.maximum(steps - 1.0, 1.0))
    nodes = names(rows, "node", table="prefill_steps")

    def seconds(size: FloatArray) -> FloatArray:
        def of(law: StepLaw, at: np.typing.NDArray[np.int64]) -> FloatArray:
            return arrays.prefill_s(law, size[at], context[at] / steps[at], prompts[at] / steps[at])

        return arrays.by_node(laws, nodes, of)

    predicted = ((steps - 1.0) * seconds(full) + seconds(last)) / steps
    at_us = numeric(rows, "started_at_us", table="prefill_steps", least=-math.inf)
    tail = _tails(laws, nodes, mean, predicted, alone=steps < 2)
    return Times(PREFILL, predicted, busy * 1e-6 / steps, mean, at_us, tail, (tuple(nodes),))


def decode_times(laws: StepLaws, frame: pl.DataFrame) -> Times:
    """Windows of decode steps: `node, observed_at_us, n_steps, busy_us, sequences, tokens`."""
    columns = ("node", "observed_at_us", "n_steps", "busy_us", "sequences", "tokens")
    require(frame, columns, table="decode_steps")
    rows = frame.filter(pl.col("n_steps") >= 1, pl.col("busy_us") > 0, pl.col("sequences") > 0)
    rows = rows.drop_nulls(list(columns)).sort("observed_at_us", "node", "busy_us", "sequences")
    steps, busy, sequences, tokens = (
        numeric(rows, name, table="decode_steps", least=0.0) for name in ("n_steps", "busy_us", "sequences", "tokens")
    )
    nodes = names(rows, "node", table="decode_steps")
    predicted = arrays.by_node(laws, nodes, lambda law, at: arrays.decode_s(law, sequences[at], tokens[at]))
    at_us = numeric(rows, "observed_at_us", table="decode_steps", least=-math.inf)
    tail = _tails(laws, nodes, sequences, predicted, alone=steps < 2)
    return Times(DECODE, predicted, busy * 1e-6 / steps, sequences, at_us, tail, (tuple(nodes),))


def transfer_times(law: TransferLaw, frame: pl.DataFrame) -> Times:
    """Transfers: `path, prefill_node, decode_node, started_at_us, duration_us, bytes` (on the wire) and
    `share_bytes_per_s`, where known `kv_blocks`, `first_of_pair`, `overlap_us`, `from_rack` and `to_rack`.

    `share_bytes_per_s` must be what ports and uplinks leave under the law's own `port_factor`. A transfer that began
    `overlap_us` before its prompt's compute ended lasts at least as long, and then the part that had to wait for it.
    """
    columns = (
        "path", "prefill_node", "decode_node", "started_at_us", "duration_us", "bytes", "share_bytes_per_s",
    )  # fmt: skip
    require(frame, columns, table=TRANSFER)
    rows = frame.filter(pl.col("bytes") > 0, pl.col("duration_us") > 0, pl.col("share_bytes_per_s") > 0)
    rows = rows.drop_nulls(list(columns)).sort("started_at_us", "prefill_node", "decode_node", "bytes")
    sent, share, took, at_us = (
        numeric(rows, name, table=TRANSFER, least=-math.inf)
        for name in ("bytes", "share_bytes_per_s", "duration_us", "started_at_us")
    )
    blocks = np.zeros(rows.height)
    if "kv_blocks" in rows.columns:
        blocks = np.nan_to_num(numeric(rows, "kv_blocks", table=TRANSFER, least=0.0))
    path, kv_bytes = names(rows, "path", table=TRANSFER), sent / law.wire_frac
    if not set(path) <= set(PATHS):
        raise ModelError(f"`path` must be one of {PATHS}", value=sorted(set(path)), place=f"{TRANSFER}.path")
    leaving = arrays.wire_s(law, path, kv_bytes, share)
    if "first_of_pair" in rows.columns:
        leaving = leaving + law.handshake_s * rows["first_of_pair"].fill_null(value=False).to_numpy()
    if "overlap_us" in rows.columns:
        compute = numeric(rows, "overlap_us", table=TRANSFER, least=0.0) * 1e-6
        leaving = np.fmax(leaving, compute + law.last_frac * arrays.wire_s(law, path, kv_bytes, share))
    predicted = arrays.fixed_s(law, path, blocks) + leaving
    factor = arrays.tail_factor(law.tail, kv_bytes, TAIL_LEVEL)
    ports = [
        tuple(egress(name) for name in names(rows, "prefill_node", table=TRANSFER)),
        tuple(ingress(name) for name in names(rows, "decode_node", table=TRANSFER)),
    ]
    if {"from_rack", "to_rack"} <= set(rows.columns):
        racks = zip(path, rows["from_rack"].to_list(), rows["to_rack"].to_list(), strict=True)
        ports.append(tuple(uplink(a, b) if kind == "cross" else "" for kind, a, b in racks))
    tail = None if factor is None else predicted * factor
    return Times(TRANSFER, predicted, took * 1e-6, sent, at_us, tail, (tuple(path), *ports))


def time_readings(times: Times) -> list[Reading]:
    """Errors of all rows, of each node or path, of ports, and of each band of load."""
    if not len(times.seen):
        return []
    everything = np.ones(len(times.seen), np.bool_)
    found = list(_group(times, ALL, everything, NODE_MARGIN))
    found += _tail(times, ALL, everything, TAIL_MARGIN)
    for kind, members in enumerate(times.groups):
        column = np.array(members)
        for name in sorted(set(members) - {""}):
            rows = column == name
            if np.count_nonzero(rows) >= MIN_ROWS:
                found += _group(times, name, rows, PORT_MARGIN if kind else NODE_MARGIN)
                found += _tail(times, name, rows, None)
    edges = _EDGES[times.estimator]
    band = np.searchsorted(np.array(edges), times.size, side="right")
    for at in np.unique(band).tolist():
        rows = band == at
        if np.count_nonzero(rows) >= MIN_ROWS:
            found += _group(times, f"{ALL}@{band_name(edges, at)}", rows, BAND_MARGIN)
    return found


def error_rows(times: Times) -> FloatArray:
    """|log(predicted / seen)| of each row."""
    found: FloatArray = np.abs(np.log(times.predicted / times.seen))
    return found


def band_name(edges: Sequence[int], at: int) -> str:
    """`-2`, `2-4`, … `512-`: from, to (exclusive)."""
    return f"{edges[at - 1] if at else ''}-{edges[at] if at < len(edges) else ''}"


def _group(times: Times, group: str, rows: BoolArray, margin: float | None) -> Iterator[Reading]:
    error = times.predicted[rows] / times.seen[rows] - 1.0
    found = estimate(error, median)
    low, high = (known(end) for end in found.interval())
    p = None if margin is None else found.beyond(0.0, margin)
    count, size = found.rows, np.abs(error)
    yield Reading(times.estimator, group, "median_error", found.value, count, low, high, 0.0, margin, p)
    yield Reading(times.estimator, group, "median_ape", float(np.median(size)), count)
    yield Reading(times.estimator, group, "p90_ape", float(np.quantile(size, 0.9)), count)


def _tail(times: Times, group: str, rows: BoolArray, margin: float | None) -> Iterator[Reading]:
    """Coverage of the 0.9 tail, of rows that have one."""
    if times.tail is None:
        return
    rows = rows & np.isfinite(times.tail)
    count = int(np.count_nonzero(rows))
    if count < MIN_ROWS:
        return
    covered = (times.seen[rows] <= times.tail[rows]).astype(np.float64)
    share = estimate(covered, lambda part: float(np.mean(part)), least_error=math.sqrt(0.09 / count))
    low, high = (known(end) for end in share.interval())
    p = None if margin is None else share.beyond(TAIL_LEVEL, margin)
    yield Reading(times.estimator, group, "tail_q90", share.value, count, low, high, TAIL_LEVEL, margin, p)


def _tails(
    laws: StepLaws, nodes: list[str], size: FloatArray, predicted: FloatArray, *, alone: BoolArray
) -> FloatArray | None:
    """Predicted 0.9 quantile of each row; NaN where the law has none or the row is not one step alone."""

    def of(tail: Tail, at: np.typing.NDArray[np.int64]) -> FloatArray:
        factor = arrays.tail_factor(tail, size[at], TAIL_LEVEL)
        return np.full(len(at), np.nan) if factor is None else factor

    kinds = {node: laws.of(node) for node in set(nodes)}
    found = np.full(len(nodes), np.nan)
    column = np.array(nodes)
    for node, law in kinds.items():
        at = np.flatnonzero((column == node) & alone)
        found[at] = predicted[at] * of(law.tail, at)
    return found if np.isfinite(found).any() else None
