"""A transfer law while it is fitted: its parameters as one vector, and what they predict of every row.

seconds = alpha + descriptor·descriptors + max(wire, overlap + last·wire), wire = bytes / (efficiency · share),
where `overlap` is what had passed when the prompt's compute ended, and `share` follows from the ports' factors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from features.link_shares import NONE, shares
from models.metrics import BoolArray, FloatArray, IntArray
from models.portable.transfer import PATHS, TransferLaw
from models.transfer.rows import TransferRows

ALPHA, DESCRIPTOR, EFFICIENCY, LAST, FACTORS = 0, 2, 3, 5, 6
"""Where parameters stand: alpha by kind, seconds a descriptor, log efficiency by kind, part of the bytes that leave
after the compute, log factor by port.
"""
RECENT_US = 86_400_000_000
RECENT_ROWS, RECENT_KIND_ROWS = 2_000, 100
MOST_ROWS, SPAN_ROWS = 100_000, 2_000
SEEN_FRAC, HIDDEN_FRAC = 1.3, 0.7
"""Seconds that a row's bytes should need / compute that they overlap: above, the row tells of its link; below, of what
follows the compute. Between them the bytes sometimes wait for the compute.
"""


@dataclass(frozen=True, slots=True)
class Shared:
    """Of the rows that are fitted: bytes/s that was left, and which part of the bytes each of the ports held up."""

    share: FloatArray
    bound_frac: FloatArray


@dataclass(frozen=True, slots=True)
class Sample:
    """The rows that are looked at: places `at` in all rows, which are the usable ones of the spans `parts`.

    `inside`: which rows of the spans these are.
    """

    rows: TransferRows
    at: IntArray
    parts: tuple[tuple[int, int], ...]
    inside: BoolArray


def newest(rows: TransferRows) -> Sample:
    """The usable rows of the table's last day: links are as they were last, not as they were on average.

    It reaches back until RECENT_ROWS rows, and RECENT_KIND_ROWS of each kind of path that occurs, are in it. More rows
    than MOST_ROWS are thinned in spans of neighbours, spread evenly: shares need their neighbours.
    """
    count, begin = len(rows.kind), 0
    if rows.flows is not None and count:
        start = rows.flows.start_us
        begin = int(np.searchsorted(start, start[-1] - RECENT_US))
        enough = [(rows.usable, RECENT_ROWS)]
        enough += [(rows.usable & (rows.kind == kind), RECENT_KIND_ROWS) for kind in range(len(PATHS))]
        for which, least in enough:
            places = np.flatnonzero(which)
            if len(places):
                begin = min(begin, int(places[max(0, len(places) - least)]))
    if count - begin <= MOST_ROWS:
        return _sample(rows, np.array([begin]), count - begin)
    return _sample(rows, np.linspace(begin, count - SPAN_ROWS, MOST_ROWS // SPAN_ROWS).astype(np.int64), SPAN_ROWS)


def first_of_pairs(rows: TransferRows) -> Sample:
    """The usable transfers that were the first of their pair in the whole table."""
    places = np.flatnonzero(rows.first)
    _, earliest = np.unique(rows.pair[places], return_index=True)
    return _sample(rows, np.sort(places[earliest]), 1)


def _sample(rows: TransferRows, starts: IntArray, length: int) -> Sample:
    places = (starts[:, None] + np.arange(length)[None, :]).ravel()
    inside = rows.usable[places]
    return Sample(rows, places[inside], tuple((start, start + length) for start in starts.tolist()), inside)


def fixed_s(rows: TransferRows, theta: FloatArray) -> FloatArray:
    """Seconds of every row that do not depend on its bytes."""
    found: FloatArray = theta[ALPHA + rows.kind] + theta[DESCRIPTOR] * np.nan_to_num(rows.descriptors)
    return found


def shared(of: Sample, theta: FloatArray) -> Shared:
    """What the ports left, given their factors. A flow is on its ports until its last byte left."""
    rows = of.rows
    if rows.flows is None:
        return Shared(rows.share[of.at], np.zeros((len(of.at), 3)))
    factor = np.append(np.exp(theta[FACTORS:]), 1.0)
    gone_us = np.minimum(np.rint(fixed_s(rows, theta) * 1e6), 0.9 * rows.duration_s * 1e6).astype(np.int64)
    end = np.maximum(rows.flows.start_us + 1, rows.flows.end_us - gone_us)
    found = shares(
        replace(rows.flows, end_us=end, capacity=rows.flows.capacity * factor[rows.flows.used]), parts=of.parts
    )
    return Shared(found.share[of.inside], found.bound_frac[of.inside])


def wire_s(of: Sample, theta: FloatArray, now: Shared) -> FloatArray:
    """Seconds during which the bytes of the fitted rows leave."""
    return of.rows.wire_bytes[of.at] / (now.share * np.exp(theta[EFFICIENCY + of.rows.kind[of.at]]))


def tells(of: Sample, wire: FloatArray) -> BoolArray:
    """Whether a row tells of its link: its bytes need `wire` seconds, well above the compute that they overlap."""
    found: BoolArray = wire > SEEN_FRAC * of.rows.overlap_s[of.at]
    return found


def resources(of: Sample) -> IntArray:
    """Columns of the ports' factors, shape (rows, 3); the first one where a row has none, with nothing bound by it."""
    if of.rows.flows is None:
        return np.full((len(of.at), 3), EFFICIENCY, np.int64)
    used = of.rows.flows.used[of.at]
    return np.where(used == NONE, EFFICIENCY, used + FACTORS)


def of_law(law: TransferLaw, rows: TransferRows) -> FloatArray:
    """The parameters of a law, for the ports of a table."""
    return np.array(
        [
            *(law.alpha_s[kind] for kind in PATHS),
            law.descriptor_s,
            *(np.log(law.efficiency[kind]) for kind in PATHS),
            law.last_frac,
            *(np.log(law.port(name)) for name in rows.ports),
        ]
    )
