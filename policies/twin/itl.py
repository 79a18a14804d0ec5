"""Histograms of the time between two tokens of an answer: exact counts in bins of at most 1 % (1 ns below 256 ns).

A gap of n ns is in the bin of its 8 leading bits: shift = max(bits of n - 8, 0), bin = 128 · shift + n >> shift.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

BINS = 7_296
"""Enough for 2⁶² ns."""


def bin_of(gap_ns: int) -> int:
    """The bin of a gap."""
    shift = max(gap_ns.bit_length() - 8, 0)
    return 128 * shift + (gap_ns >> shift)


def bin_edges_ns() -> Float64:
    """First gap of each bin and the end of the last one, shape (BINS + 1,); exact."""
    at = np.arange(BINS + 1)
    shift = np.maximum(at // 128 - 1, 0)
    edges: Float64 = np.ldexp((at - 128 * shift).astype(np.float64), shift)
    return edges


def quantile_s(counts: Int64, level: float) -> float:
    """The gap in seconds that a share `level` of the gaps does not exceed: its bin's middle. NaN without gaps.

    `counts`: (BINS,), or (classes, BINS) for all of them together.
    """
    together = counts.reshape(-1, BINS).sum(axis=0)
    total = int(together.sum())
    if total == 0:
        return float("nan")
    rank = min(max(int(np.ceil(level * total)), 1), total)
    found = int(np.searchsorted(np.cumsum(together), rank))
    edges = bin_edges_ns()
    last_ns = edges[found + 1] - 1.0
    return float((edges[found] + last_ns) / 2) / 1e9
