"""Quantiles of a sample whose members come in cells (blocks of time, replays), each cell drawn some number of times.

All draws at once and exact: the sample is sorted once and cut into groups. How many members of each group a draw holds
is a product of matrices; only the group in which a draw's quantile lies is looked through.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

_LOOK_COST = 64
"""What it takes to look through a member, in members of a matrix product."""


def drawn_quantiles(values: Float64, cell: Int64, counts: Float64, levels: Sequence[float]) -> Float64:
    """Shape (levels, draws): `np.quantile` of the members, each as often as its cell was drawn.

    `values`, `cell`: shape (members,), at least one. `counts`: whole numbers, shape (draws, cells); every draw holds a
    member.
    """
    draws, cells = counts.shape
    order = np.argsort(values, kind="stable")
    groups = min(len(values), math.ceil(math.sqrt(_LOOK_COST * len(values) / cells)))
    size = -(-len(values) // groups)
    groups = -(-len(values) // size)
    at = np.arange(len(values)) // size
    held = np.bincount(at * cells + cell[order], minlength=groups * cells).reshape(groups, cells).astype(np.float64)
    below = np.concatenate([np.zeros((draws, 1)), np.cumsum(counts @ held.T, axis=1)], axis=1)
    # The last group is filled up with members of a cell that is never drawn.
    rest = groups * size - len(values)
    ordered = np.pad(values[order], (0, rest), mode="edge").reshape(groups, size)
    cell_of = np.pad(cell[order], (0, rest), constant_values=cells).reshape(groups, size)
    often = np.concatenate([counts, np.zeros((draws, 1))], axis=1)
    rows = np.arange(draws)

    def member(place: Float64) -> Float64:
        """The value at a place among all drawn members in order; shape (draws,)."""
        group = (below[:, 1:] <= place[:, None]).sum(axis=1)
        running = below[rows, group][:, None] + np.cumsum(often[rows[:, None], cell_of[group]], axis=1)
        return np.asarray(ordered[group, (running <= place[:, None]).sum(axis=1)], dtype=np.float64)

    last = below[:, -1] - 1.0
    found = []
    for level in levels:
        place = level * last
        first = np.floor(place)
        part = place - first
        low, high = member(first), member(np.minimum(first + 1.0, last))
        # As numpy interpolates: from the nearer of the two.
        found.append(np.where(part < 0.5, low + (high - low) * part, high - (high - low) * (1.0 - part)))
    return np.stack(found)
