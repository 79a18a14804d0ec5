"""What a transfer law has beside constants and speeds: overlap, compression, descriptors, first transfers, tails."""

from __future__ import annotations

import numpy as np

from models.metrics import MAD_TO_SIGMA, FloatArray
from models.portable.steps import NO_TAIL, Tail
from models.transfer.model import first_of_pairs, fixed_s, shared, wire_s
from models.transfer.rows import TransferRows

TAIL_LEVELS = (0.5, 0.9, 0.95, 0.99)
TAIL_BAND_ROWS = 400
TAIL_BANDS = 4
MIN_FIRST = 5
MIN_ROWS = 20
CUT_FRAC = 0.1
MIN_OVERLAP = 0.01
STANDARD_ERRORS = 3.0


def overlap_frac(overlap_s: FloatArray, compute_s: FloatArray) -> float:
    """Part of the compute that a transfer overlaps: the mean without the highest and lowest tenth; 0 if under 0.01."""
    known = np.isfinite(overlap_s) & (compute_s > 0)
    if np.count_nonzero(known) < MIN_ROWS:
        return 0.0
    part = np.sort(np.clip(overlap_s[known] / compute_s[known], 0.0, 1.0))
    cut = int(CUT_FRAC * len(part))
    found = float(np.mean(part[cut : len(part) - cut]))
    return found if found >= MIN_OVERLAP else 0.0


def wire_frac(wire_bytes: FloatArray, kv_bytes: FloatArray) -> float:
    """Bytes on the wire / KV bytes that D lacked: the median, by bytes; 1 if unknown."""
    known = (wire_bytes > 0) & (kv_bytes > 0)
    if np.count_nonzero(known) < MIN_ROWS:
        return 1.0
    ratio, weight = wire_bytes[known] / kv_bytes[known], kv_bytes[known]
    order = np.argsort(ratio, kind="stable")
    total = np.cumsum(weight[order])
    return float(ratio[order][np.searchsorted(total, total[-1] / 2.0)])


def per_block(descriptors: FloatArray, kv_blocks: FloatArray) -> float:
    """Descriptors of a KV block that is sent; 0 if unknown."""
    known = (descriptors > 0) & (kv_blocks > 0)
    if np.count_nonzero(known) < MIN_ROWS:
        return 0.0
    return float(np.sum(descriptors[known]) / np.sum(kv_blocks[known]))


def handshake_s(rows: TransferRows, theta: FloatArray) -> float | None:
    """What the first transfer of a pair takes more; None = too few of them.

    A table of several days has a first transfer of a pair each day; only the earliest of them may have met a new
    connection. 0 unless the median excess stands out of its standard error.
    """
    of = first_of_pairs(rows)
    if len(of.at) < MIN_FIRST:
        return None
    wire = wire_s(of, theta, shared(of, theta))
    seen = wire >= rows.overlap_s[of.at]
    if np.count_nonzero(seen) < MIN_FIRST:
        return None
    excess = (rows.duration_s[of.at] - fixed_s(rows, theta)[of.at] - wire)[seen]
    middle = float(np.median(excess))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(excess - middle)))
    return middle if middle > STANDARD_ERRORS * 1.2533 * spread / np.sqrt(len(excess)) else 0.0


def tail(ratio: FloatArray, kv_bytes: FloatArray) -> Tail:
    """Quantiles of true / predicted by quarters of the sizes; one band where a quarter has fewer than 400 rows.

    Rows out of line count: they are the tail. A quantile is the order statistic ceil((n + 1)·level), at most the
    largest.
    """
    if len(ratio) < MIN_ROWS:
        return NO_TAIL
    bands = TAIL_BANDS if len(ratio) >= TAIL_BANDS * TAIL_BAND_ROWS else 1
    edges = np.unique(np.quantile(kv_bytes, np.arange(1, bands) / bands)) if bands > 1 else np.zeros(0)
    band = np.searchsorted(edges, kv_bytes, side="right")
    factor = []
    for k in range(len(edges) + 1):
        inside = np.sort(ratio[band == k]) if (band == k).any() else np.sort(ratio)
        places = [min(len(inside), int(np.ceil((len(inside) + 1) * level))) - 1 for level in TAIL_LEVELS]
        factor.append(tuple(float(inside[place]) for place in places))
    return Tail(TAIL_LEVELS, tuple(float(edge) for edge in edges), tuple(factor))
