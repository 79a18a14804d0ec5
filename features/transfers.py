"""Transfers as a training table: their bytes, their time, and the bandwidth that was left to each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

_PAIRS_AT_ONCE = 4_000_000
_NONE = -1


@dataclass(frozen=True, slots=True)
class _Ports:
    """Capacity in bytes/s of every port and uplink; per transfer the index of its P egress, D ingress and uplink."""

    capacity: Float64
    used: Int64  # (n, 3), _NONE = no such resource


def transfers(
    requests: pl.DataFrame,
    facts: Mapping[str, tuple[str, float]],
    uplinks: Mapping[tuple[str, str], float],
) -> pl.DataFrame:
    """One row a transfer between two nodes that `facts` knows, sorted by start and request id.

    facts: node -> (rack, port bytes/s); uplinks: (rack of P, rack of D) -> bytes/s, shared by all transfers of that
    direction; racks without one are joined without a limit.

    Columns: request_id, prefill_node, decode_node, path (local | cross), started_at_us, duration_us, bytes,
    descriptors, share_bytes_per_s = mean over the transfer's interval of the minimum over its resources (egress of P,
    uplink of a cross path, ingress of D) of capacity / transfers logged on it, alone_bytes_per_s = the same minimum
    without others, shared_frac = part of the interval in which another transfer was on one of its resources.
    Every logged interval counts as a flow; a row needs bytes and a duration above 0.
    """
    flows = requests.filter(
        pl.all_horizontal(
            pl.col("prefill_node", "decode_node", "transfer_started_at_us", "transfer_finished_at_us").is_not_null()
        ),
        pl.col("prefill_node").is_in(list(facts)),
        pl.col("decode_node").is_in(list(facts)),
        pl.col("prefill_node") != pl.col("decode_node"),
        pl.col("transfer_finished_at_us") > pl.col("transfer_started_at_us"),
    ).sort("transfer_started_at_us", "request_id")
    start = flows["transfer_started_at_us"].to_numpy()
    end = flows["transfer_finished_at_us"].to_numpy()
    ports, cross = _ports(flows, facts, uplinks)
    share, alone, shared = _shares(start, end, ports)
    return (
        flows.select(
            "request_id",
            "prefill_node",
            "decode_node",
            pl.Series("path", np.where(cross, "cross", "local"), dtype=pl.String),
            pl.col("transfer_started_at_us").alias("started_at_us"),
            (pl.col("transfer_finished_at_us") - pl.col("transfer_started_at_us")).alias("duration_us"),
            pl.col("transferred_bytes").alias("bytes"),
            pl.col("transfer_descriptors").alias("descriptors"),
            pl.Series("share_bytes_per_s", share, dtype=pl.Float64),
            pl.Series("alone_bytes_per_s", alone, dtype=pl.Float64),
            pl.Series("shared_frac", shared, dtype=pl.Float64),
        )
        .filter(pl.col("bytes") > 0)
        .sort("started_at_us", "request_id")
    )


def _ports(
    flows: pl.DataFrame, facts: Mapping[str, tuple[str, float]], uplinks: Mapping[tuple[str, str], float]
) -> tuple[_Ports, npt.NDArray[np.bool_]]:
    """Resources of each flow, and whether its path crosses racks. A node sends by one port and receives by another."""
    capacity: list[float] = []
    index: dict[tuple[str, ...], int] = {}

    def resource(key: tuple[str, ...], bytes_per_s: float) -> int:
        if key not in index:
            index[key] = len(capacity)
            capacity.append(bytes_per_s)
        return index[key]

    used = np.full((flows.height, 3), _NONE, np.int64)
    cross = np.zeros(flows.height, np.bool_)
    for row, (source, target) in enumerate(flows.select("prefill_node", "decode_node").iter_rows()):
        (rack_p, egress), (rack_d, ingress) = facts[source], facts[target]
        used[row, 0] = resource(("out", source), egress)
        used[row, 1] = resource(("in", target), ingress)
        cross[row] = rack_p != rack_d
        if cross[row] and (rack_p, rack_d) in uplinks:
            used[row, 2] = resource(("up", rack_p, rack_d), uplinks[rack_p, rack_d])
    return _Ports(np.array(capacity, np.float64), used), cross


def _shares(start: Int64, end: Int64, ports: _Ports) -> tuple[Float64, Float64, Float64]:
    """Mean share, share without others, and shared part of each flow's interval, shape (n,)."""
    n = len(start)
    share, shared, alone = np.zeros(n), np.zeros(n), np.zeros(n)
    if n == 0:
        return share, alone, shared
    bounds = np.unique(np.concatenate([start, end]))
    first, last = np.searchsorted(bounds, start), np.searchsorted(bounds, end)
    length = np.diff(bounds).astype(np.float64)
    counts = _flow_counts(first, last, ports, len(bounds))
    # A resource that a flow does not have never binds: one row of infinite capacity stands for it.
    capacity = np.append(ports.capacity, np.inf)
    alone = capacity[ports.used].min(axis=1)
    spans = last - first
    total = np.concatenate([[0], np.cumsum(spans)])
    at = 0
    while at < n:
        # The longest run of flows whose (flow, segment) pairs fit into memory, at least one flow.
        to = max(at + 1, int(np.searchsorted(total, total[at] + _PAIRS_AT_ONCE, side="right")) - 1)
        span = spans[at:to]
        flow = np.repeat(np.arange(at, to), span)
        segment = np.repeat(first[at:to], span) + np.arange(len(flow)) - np.repeat(total[at:to] - total[at], span)
        on = counts[ports.used[flow], segment[:, None]]
        rate = (capacity[ports.used[flow]] / np.maximum(on, 1)).min(axis=1)
        weight = length[segment]
        whole = np.bincount(flow - at, weights=weight, minlength=to - at)
        share[at:to] = np.bincount(flow - at, weights=weight * rate, minlength=to - at) / whole
        shared[at:to] = np.bincount(flow - at, weights=weight * (on > 1).any(axis=1), minlength=to - at) / whole
        at = to
    return share, alone, shared


def _flow_counts(first: Int64, last: Int64, ports: _Ports, bounds: int) -> npt.NDArray[np.int32]:
    """Flows on each resource in each segment between bounds, shape (resources + 1, bounds); the last row is 0."""
    change = np.zeros((len(ports.capacity) + 1, bounds), np.int32)
    for column in range(ports.used.shape[1]):
        has = ports.used[:, column] != _NONE
        np.add.at(change, (ports.used[has, column], first[has]), 1)
        np.add.at(change, (ports.used[has, column], last[has]), -1)
    counts: npt.NDArray[np.int32] = np.cumsum(change, axis=1, dtype=np.int32)
    return counts
