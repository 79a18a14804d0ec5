"""Prompts as runs of blocks: what the engine's prefix caches count in.

A segment is a maximal run of blocks that always stand together, so a prompt is a few whole segments where it is dozens
of blocks, and what a cache holds of a segment is its first so many blocks.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policies.twin.workload import Int32, Int64, Workload


class Segments(NamedTuple):
    """Request i's segments are `refs[offset[i]:offset[i + 1]]`; segment s is blocks `start[s]` to
    `start[s + 1] - 1` of a numbering of its own.
    """

    offset: Int64  # (n + 1,)
    refs: Int32
    start: Int64  # (S + 1,)


_Known = tuple["weakref.ref[Any]", "weakref.ref[Any]", Segments]
_KEPT = 16
_PIECE = 1 << 18
_known: dict[tuple[int, int], _Known] = {}


def segments_of(workload: Workload) -> Segments:
    """The workload's segments; kept as long as its blocks are the same arrays."""
    ids, offset = workload.block_ids, workload.block_offset
    key = (id(ids), id(offset))
    found = _known.get(key)
    if found is not None and found[0]() is ids and found[1]() is offset:
        return found[2]
    segments = cut(ids, offset)
    know_segments(workload, segments)
    return segments


def know_segments(workload: Workload, segments: Segments) -> None:
    """These are the workload's segments: they were cut before."""
    ids, offset = workload.block_ids, workload.block_offset
    if len(_known) >= _KEPT:
        _known.pop(next(iter(_known)))
    _known[id(ids), id(offset)] = (weakref.ref(ids), weakref.ref(offset), segments)


def cut(block_ids: Int32, block_offset: Int64) -> Segments:
    """Segments of prompts as in `Workload`: a block joins the one before it if each always stands beside the other."""
    ids = block_ids[block_offset[0] : block_offset[-1]]
    if not len(ids):
        return Segments(np.zeros(len(block_offset), np.int64), np.zeros(0, np.int32), np.zeros(1, np.int64))
    offset = block_offset - block_offset[0]
    filled = offset[:-1] < offset[1:]
    first = np.zeros(len(ids) + 1, np.bool_)
    first[offset[:-1][filled]] = True
    first[-1] = True

    # Whether the place joins the one before it; the first place of a prompt joins none.
    joined = _always(ids, first[1:], 1)
    joined[1:] = joined[:-1] & ~first[1:-1]
    joined[0] = False
    joined &= _always(ids, first[:-1], -1)

    heads = np.flatnonzero(~joined)
    different, refs = np.unique(ids[heads], return_inverse=True)
    sizes = np.zeros(len(different), np.int64)
    sizes[refs] = np.diff(heads, append=len(ids))
    return Segments(
        offset=np.searchsorted(heads, offset),
        refs=refs.astype(np.int32),
        start=np.concatenate([[0], np.cumsum(sizes)]),
    )


def _always(ids: Int32, alone: npt.NDArray[np.bool_], step: int) -> npt.NDArray[np.bool_]:
    """Of each place, whether its block has this same neighbour, `step` places on, wherever it stands.

    `alone`: places without a neighbour. In pieces: blocks are many, and memory beside them is short.
    """
    one = np.empty(int(ids.max()) + 1, np.int32)
    mixed = np.zeros(len(one), np.bool_)
    pieces = [slice(at, min(at + _PIECE, len(ids))) for at in range(0, len(ids), _PIECE)]

    def beside(piece: slice) -> Int32:
        neighbours = np.full(piece.stop - piece.start, -1, np.int32)
        first, last = max(piece.start + step, 0), min(piece.stop + step, len(ids))
        neighbours[first - step - piece.start : last - step - piece.start] = ids[first:last]
        neighbours[alone[piece]] = -1
        return neighbours

    for piece in pieces:
        one[ids[piece]] = beside(piece)
    for piece in pieces:
        mixed[ids[piece][one[ids[piece]] != beside(piece)]] = True
    return ~mixed[ids]
