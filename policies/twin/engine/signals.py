"""What routers see of the prefix caches, late and with losses (docs/twin.md, "What a router sees"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.twin.engine.columns import S_RESIDENT
from policies.twin.engine.links import draw
from policies.twin.engine.parts import Cache

CHANGES = 11


SHOWN, LOGGED, WAITING, CHANGED = range(4)
"""Places in `log_at`: numbers of rows of the log, of changes in it, and of every P's changes from there on."""


@kernel
def _show(cache: Cache, block: int, p: int, resident: int) -> None:
    """Routers learn of a change."""
    bit = np.uint64(1) << np.uint64(p & 63)
    if resident == 1:
        cache.seen[block, p >> 6] |= bit
    else:
        cache.seen[block, p >> 6] &= ~bit


@kernel
def _show_oldest(cache: Cache, changes: int) -> None:
    """Routers learn of the oldest changes in the log, at most so many and of one row."""
    row = cache.log[cache.log_at[SHOWN] % len(cache.log)]
    shown = min(row[2], changes)
    step = 1 if row[4] == 1 else -1
    for k in range(shown):
        _show(cache, row[1] + step * k, row[3], row[4])
    row[1] += step * shown
    row[2] -= shown
    cache.log_at[WAITING] -= shown
    if row[2] == 0:
        cache.log_at[SHOWN] += 1


@kernel
def _tell(cache: Cache, p: int, block: int, blocks: int, resident: int, now: int) -> None:
    """Changes of blocks from `block` on, up or down, go into the log."""
    size = len(cache.log)
    while cache.log_at[WAITING] > 0 and cache.log_at[WAITING] + blocks > size:
        _show_oldest(cache, cache.log_at[WAITING] + blocks - size)
    step = 1 if resident == 1 else -1
    while blocks > size:
        _show(cache, block, p, resident)
        block += step
        blocks -= 1
    row = cache.log[cache.log_at[LOGGED] % size]
    row[0] = now
    row[1] = block
    row[2] = blocks
    row[3] = p
    row[4] = resident
    cache.log_at[LOGGED] += 1
    cache.log_at[WAITING] += blocks


@kernel
def changed(cache: Cache, p: int, block: int, blocks: int, resident: int, now: int) -> None:
    """Blocks from `block` on became resident on P, upwards (1), or are gone, downwards (0)."""
    if cache.loss_frac == 0.0:
        _tell(cache, p, block, blocks, resident, now)
        return
    step = 1 if resident == 1 else -1
    for k in range(blocks):
        bits = draw(cache.seed, CHANGES, p, cache.log_at[CHANGED + p]) >> np.uint64(11)
        cache.log_at[CHANGED + p] += 1
        if np.float64(bits) * 2.0**-53 >= cache.loss_frac:
            _tell(cache, p, block + step * k, 1, resident, now)


@kernel
def _catch_up(cache: Cache, now: int) -> None:
    """Show what was published long enough before now."""
    until = now if cache.period == 0 and cache.delay == 0 else now - cache.delay - 1
    if cache.period > 0:
        until = until // cache.period * cache.period
    size = len(cache.log)
    while cache.log_at[WAITING] > 0 and cache.log[cache.log_at[SHOWN] % size, 0] <= until:
        _show_oldest(cache, cache.log_at[WAITING])


@kernel
def find_hits(cache: Cache, r: int, most: int, now: int) -> None:
    """Hit blocks of r's prompt on every P as routers see them now, at most `most`, into `cache.hits`."""
    hits = cache.hits
    done = 0
    for p in range(len(hits)):
        hits[p] = 0
    if len(cache.seen) > 0:
        _catch_up(cache, now)
    for at in range(cache.offset[r], cache.offset[r + 1]):
        segment = cache.refs[at]
        first = cache.start[segment]
        size = cache.start[segment + 1] - first
        alive = False
        for p in range(len(hits)):
            if hits[p] < done:
                continue
            found = np.int64(0)
            if len(cache.seen) == 0:
                found = np.int64(cache.segments[segment, p, S_RESIDENT])
            else:
                bit = np.uint64(1) << np.uint64(p & 63)
                while found < size and cache.seen[first + found, p >> 6] & bit != 0:
                    found += 1
            hits[p] = done + found
            alive = alive or found == size
        done += size
        if not alive or done >= most:
            break
    for p in range(len(hits)):
        hits[p] = min(hits[p], most)
