"""Answers of other lengths for the same requests: a policy must not be tuned to what one day happened to have.

What the length law does not explain of an answer, the ratio of its tokens to the expected median, goes to another
request of the same group (class, application, band of prompts): medians stay each request's own, and so does the
group's spread, whatever its shape.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policies.lengths import MEDIAN, LengthRows, tokens_at
from policies.twin.workload import Workload

DRAWN = 21
"""Component of the seed."""


def with_drawn_lengths(workload: Workload, rows: LengthRows, *, seed: int, draw: int) -> Workload:
    """The workload with output tokens drawn anew, at least 1 and at most each request's cap. `draw`: which one.

    Answers whose logged length is a guess are drawn too and lend no ratio; those that were cancelled stay as they are
    (they are neither learned from nor scored), as does an output of 0. A group in which no length is known borrows of
    all. Equal arguments give equal lengths.
    """
    output = workload.output_tokens
    lends = (rows.learned > 0) & (output > 0)
    if not lends.any():
        return workload
    median = np.maximum(tokens_at(rows, (MEDIAN,), np.zeros(workload.requests, np.int32)), 1.0)
    ratio = output / median
    drawn = output.astype(np.float64)
    moves = (output > 0) & (lends | workload.scored)
    rng = np.random.default_rng((seed, DRAWN, draw))
    for group in np.unique(rows.group[moves]):
        own = rows.group == group
        lenders, mine = np.flatnonzero(lends & own), np.flatnonzero(moves & own)
        lent = ratio[rng.choice(lenders if len(lenders) else np.flatnonzero(lends), len(mine))]
        drawn[mine] = median[mine] * lent
    whole = np.clip(np.floor(np.minimum(drawn, rows.cap) + 0.5), 1, np.iinfo(np.int32).max)
    return replace(workload, output_tokens=np.where(moves, whole, output).astype(np.int32))
