"""Stack distances: how many other blocks were used since a block was used last (Mattson et al. 1970).

A cache of C blocks that evicts what was used longest ago holds a block exactly if fewer than C others were used since,
so that one pass gives the hits of every capacity at once. A block that expires is always older than all that live, so
expiry by age does not change distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.metrics import FloatArray, IntArray

NEVER = -1


@dataclass(frozen=True, slots=True)
class Reuses:
    """Lookups of blocks that were used before, in the order of the log; shape (n,).

    `request`: which prompt looks. `place`: of the block in the prompt, from 0. `distance`: other blocks used since its
    last use. `age_s`: since then.
    """

    request: IntArray
    place: IntArray
    distance: IntArray
    age_s: FloatArray


def reuses(ids: IntArray, offset: IntArray, at_us: IntArray) -> Reuses:
    """Lookups of blocks that an earlier prompt used; prompt i has the blocks `ids[offset[i]:offset[i + 1]]`, in order.

    A prompt looks at all its blocks, then uses them from the last to the first: the beginning of a prompt, which others
    may share, is evicted last. Blocks are prefixes: a block is used with all before it in its prompt.
    O(n log n) in the number of uses.
    """
    count = np.diff(offset)
    request = np.repeat(np.arange(len(count)), count)
    # Uses in time: each prompt's blocks from its last to its first.
    place = np.repeat(offset[1:], count) - 1 - np.arange(len(ids))
    used = ids[np.repeat(offset[:-1], count) + place]
    last = _last_use(used)
    begin = offset[:-1][request]
    known = (last != NEVER) & (last < begin)
    # Blocks used since = uses since, less those that were used again before this prompt: their last use is later.
    again = larger_before(last)
    distance = begin - 1 - last - again
    places = np.flatnonzero(known)
    order = places[np.lexsort((place[places], request[places]))]
    age_s = (at_us[request[order]] - at_us[request[last[order]]]).astype(np.float64) * 1e-6
    return Reuses(request[order], place[order], distance[order], age_s)


def _last_use(used: IntArray) -> IntArray:
    """Place of the use of the same block before each use, NEVER = none."""
    order = np.argsort(used, kind="stable")
    same = used[order[1:]] == used[order[:-1]]
    last = np.full(len(used), NEVER, np.int64)
    last[order[1:][same]] = order[:-1][same]
    return last


def larger_before(values: IntArray) -> IntArray:
    """How many earlier entries are larger than each entry, shape (n,); entries >= -1.

    The entries are sorted bit by bit from the highest: at each bit, an entry with 0 is smaller than those entries with
    1 that agree with it in all higher bits.
    """
    value = values + 1
    found = np.zeros(len(value), np.int64)
    order = np.arange(len(value))
    for bit in range(int(value.max(initial=0)).bit_length() - 1, -1, -1):
        now = value[order]
        one = (now >> bit) & 1
        group = now >> (bit + 1)
        start = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
        size = np.diff(np.append(start, len(now)))
        ones = np.cumsum(one)
        ones_before = ones - one - np.repeat(ones[start] - one[start], size)
        found[order] += np.where(one == 0, ones_before, 0)
        # Zeros of a group, then its ones, each in the order that they had.
        within = np.arange(len(now)) - np.repeat(start, size)
        zeros = size - np.add.reduceat(one, start)
        to = np.repeat(start, size) + np.where(one == 0, within - ones_before, np.repeat(zeros, size) + ones_before)
        sorted_order = np.empty_like(order)
        sorted_order[to] = order
        order = sorted_order
    return found
