"""What ports and uplinks left to each transfer, by processor sharing: a resource is divided equally among its flows,
and a flow has the least of what its resources give it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]

NONE = -1
"""No such resource."""
PAIRS_AT_ONCE = 4_000_000
_FLOWS_AT_ONCE = 8_192
_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Flows:
    """n flows in the order of their starts. `start_us` < `end_us`, shape (n,).

    `used`: index of the flow's egress, ingress and uplink, NONE = it has none, shape (n, 3). `capacity`: bytes/s of
    each of them, infinite where there is none, shape (n, 3).
    """

    start_us: Int64
    end_us: Int64
    used: Int64
    capacity: Float64


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the flows that were asked for, in their order.

    `share`: bytes/s, mean over the flow's interval. `alone`: without other flows. `shared_frac`: part of the interval
    with another flow on one of its resources. `bound_frac`: part of the bytes that moved while each resource was the
    narrowest, shape (flows, 3); resources that are equally narrow take equal parts.
    """

    share: Float64
    alone: Float64
    shared_frac: Float64
    bound_frac: Float64


def shares(flows: Flows, parts: Sequence[tuple[int, int]] | None = None) -> Shares:
    """Shares of the flows [from, to) of every part; None = of all flows. All flows count on their resources.

    Time and memory grow with the flows that were asked for and those beside them, not with the square of the flows.
    """
    asked = [(0, len(flows.start_us))] if parts is None else list(parts)
    latest = np.maximum.accumulate(flows.end_us)
    blocks = [
        _block(flows, latest, at, min(at + _FLOWS_AT_ONCE, end))
        for begin, end in asked
        for at in range(begin, end, _FLOWS_AT_ONCE)
    ]
    if not blocks:
        return Shares(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros((0, 3)))
    return Shares(
        np.concatenate([block.share for block in blocks]),
        np.concatenate([block.alone for block in blocks]),
        np.concatenate([block.shared_frac for block in blocks]),
        np.concatenate([block.bound_frac for block in blocks]),
    )


def _block(flows: Flows, latest: Int64, begin: int, end: int) -> Shares:
    """Shares of flows begin..end - 1 of those that run beside them. `latest`: last end of a flow and all before it."""
    from_us, to_us = flows.start_us[begin], flows.end_us[begin:end].max()
    oldest = int(np.searchsorted(latest, from_us, side="right"))
    beside = oldest + np.flatnonzero(flows.end_us[oldest : np.searchsorted(flows.start_us, to_us)] > from_us)
    bounds = np.unique(np.concatenate([flows.start_us[beside], flows.end_us[beside]]).clip(from_us, to_us))
    names, used = np.unique(flows.used[beside], return_inverse=True)
    used = used.reshape(-1, 3)
    counts = _counts(flows, beside, used, bounds, np.flatnonzero(names == NONE))
    mine = np.searchsorted(beside, np.arange(begin, end))
    first = np.searchsorted(bounds, flows.start_us[begin:end])
    span = np.searchsorted(bounds, flows.end_us[begin:end]) - first
    length = np.diff(bounds).astype(np.float64)
    capacity = flows.capacity[begin:end]
    count = end - begin
    share, shared, bound = np.zeros(count), np.zeros(count), np.zeros((count, 3))
    for some in _runs(span):
        flow = np.repeat(np.arange(some.start, some.stop), span[some])
        before = np.cumsum(span[some]) - span[some]
        segment = np.arange(len(flow)) + np.repeat(first[some] - before, span[some])
        on = counts[used[mine[flow]], segment[:, None]]
        rates = capacity[flow] / np.maximum(on, 1)
        rate = rates.min(axis=1)
        weight = length[segment]
        narrow = rates <= (rate * (1.0 + _TIE))[:, None]
        moved = weight * rate / narrow.sum(axis=1)
        at, size = flow - some.start, some.stop - some.start
        whole = np.bincount(at, weights=weight, minlength=size)
        total = np.bincount(at, weights=weight * rate, minlength=size)
        share[some] = total / whole
        shared[some] = np.bincount(at, weights=weight * (on > 1).any(axis=1), minlength=size) / whole
        for k in range(3):
            bound[some, k] = np.bincount(at, weights=moved * narrow[:, k], minlength=size) / total
    return Shares(share, capacity.min(axis=1), shared, bound)


def _runs(span: Int64) -> Iterator[slice]:
    """The longest runs of flows whose (flow, segment) pairs fit into memory, at least one flow each."""
    total = np.concatenate([[0], np.cumsum(span)])
    at = 0
    while at < len(span):
        to = max(at + 1, int(np.searchsorted(total, total[at] + PAIRS_AT_ONCE, side="right")) - 1)
        yield slice(at, to)
        at = to


def _counts(flows: Flows, beside: Int64, used: Int64, bounds: Int64, none: Int64) -> Int32:
    """Flows on each resource in each segment between bounds, shape (resources, bounds); 0 for NONE."""
    change = np.zeros((int(used.max()) + 1, len(bounds)), np.int32)
    first = np.searchsorted(bounds, flows.start_us[beside].clip(bounds[0]))
    last = np.searchsorted(bounds, flows.end_us[beside].clip(None, bounds[-1]))
    for k in range(3):
        np.add.at(change, (used[:, k], first), 1)
        np.add.at(change, (used[:, k], last), -1)
    change[none] = 0
    return np.cumsum(change, axis=1, dtype=np.int32)
