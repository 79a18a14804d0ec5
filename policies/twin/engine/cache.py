"""Prefix caches of P nodes, in segments of prompts (docs/twin.md, "P node"). Kernels.

A prompt holds its first blocks and gives them back from the last one on, so of a segment a P holds a first part, a
first part of that is pinned, and the rest leaves from its end: all is a few numbers a segment, and a run of blocks
enters or leaves the LRU list at once. At most one prompt of a P, the one that a step cut, ends within a segment.
"""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.twin.engine.columns import (
    EVICTIONS,
    L_BEFORE,
    L_HIGH,
    L_LOW,
    L_NEXT,
    L_OLDER,
    L_SEGMENT,
    L_SINCE,
    NEVER,
    P_CACHED,
    P_CUT,
    P_CUT_HELD,
    P_PINNED,
    Q_FULL,
    Q_SEGMENT,
    Q_SEGMENT_HELD,
    Q_TAKEN,
    S_HOLDERS,
    S_PINNED,
    S_RESIDENT,
    S_RUN,
)
from policies.twin.engine.parts import Cache, Int64
from policies.twin.engine.signals import changed

GONE_FROM_P, RESIDENT = 0, 1


@kernel
def prefix(cache: Cache, p: int, r: int, most: int) -> tuple[int, int]:
    """Longest run of resident leading blocks of r's prompt on P, at most `most`, and how many of them are unpinned."""
    match = 0
    unpinned = 0
    for at in range(cache.offset[r], cache.offset[r + 1]):
        segment = cache.refs[at]
        record = cache.segments[segment, p]
        found = min(record[S_RESIDENT], most - match)
        match += found
        unpinned += max(found - record[S_PINNED], 0)
        if found < cache.start[segment + 1] - cache.start[segment]:
            break
    return match, unpinned


@kernel
def _unlink(runs: Int64, p: int, run: int) -> None:
    """The run leaves the LRU list; its row is free."""
    following = runs[p, run, L_NEXT]
    before = runs[p, run, L_BEFORE]
    runs[p, before, L_NEXT] = following
    runs[p, following, L_BEFORE] = before
    runs[p, run, L_OLDER] = runs[p, 0, L_OLDER]
    runs[p, 0, L_OLDER] = run


@kernel
def evict(cache: Cache, ps: Int64, p: int, blocks: int, now: int) -> None:
    """The least recently used unpinned blocks are gone, so many of them."""
    runs = cache.runs
    ps[p, P_CACHED] -= blocks
    while blocks > 0:
        run = runs[p, 0, L_NEXT]
        segment = runs[p, run, L_SEGMENT]
        high = runs[p, run, L_HIGH]
        low = max(runs[p, run, L_LOW], high - blocks)
        # A segment's older runs lie behind its newer ones: this one is its last.
        cache.segments[segment, p, S_RESIDENT] = low
        if len(cache.seen) > 0:
            changed(cache, p, cache.start[segment] + high - 1, high - low, GONE_FROM_P, now)
        blocks -= high - low
        if low > runs[p, run, L_LOW]:
            runs[p, run, L_HIGH] = low
            continue
        newer = cache.segments[segment, p, S_RUN]
        if newer == run:
            cache.segments[segment, p, S_RUN] = 0
        else:
            while runs[p, newer, L_OLDER] != run:
                newer = runs[p, newer, L_OLDER]
            runs[p, newer, L_OLDER] = 0
        _unlink(runs, p, run)


@kernel
def next_time_out(cache: Cache, ps: Int64, p: int, ttl: int) -> int:
    """When the block is gone that P has had unpinned longest."""
    gone = NEVER
    if ttl < NEVER and ps[p, P_CACHED] > 0:
        gone = cache.runs[p, cache.runs[p, 0, L_NEXT], L_SINCE] + ttl
    return gone


@kernel
def time_out(cache: Cache, ps: Int64, p: int, until: int, now: int) -> int:
    """Blocks that became unpinned at `until` or before are gone; how many."""
    gone: int = ps[p, P_CACHED]
    while ps[p, P_CACHED] > 0:
        run = cache.runs[p, 0, L_NEXT]
        if cache.runs[p, run, L_SINCE] > until:
            break
        evict(cache, ps, p, cache.runs[p, run, L_HIGH] - cache.runs[p, run, L_LOW], now)
    gone -= ps[p, P_CACHED]
    return gone


@kernel
def _repin(cache: Cache, p: int, segment: int, high: int) -> None:
    """The segment's unpinned blocks before `high` leave the LRU list."""
    runs = cache.runs
    run = cache.segments[segment, p, S_RUN]
    while run > 0 and runs[p, run, L_LOW] < high:
        if runs[p, run, L_HIGH] > high:
            runs[p, run, L_LOW] = high
            break
        older = runs[p, run, L_OLDER]
        _unlink(runs, p, run)
        run = older
    cache.segments[segment, p, S_RUN] = run


@kernel
def _unpin(cache: Cache, ps: Int64, p: int, segment: int, low: int, now: int) -> None:
    """The segment's pinned blocks from `low` on go to the tail of the LRU list, the last one first."""
    runs, record = cache.runs, cache.segments[segment, p]
    blocks = record[S_PINNED] - low
    if blocks <= 0:
        return
    run = runs[p, 0, L_OLDER]
    if run > 0:
        runs[p, 0, L_OLDER] = runs[p, run, L_OLDER]
    else:
        runs[p, 0, L_HIGH] += 1
        run = runs[p, 0, L_HIGH]
    last = runs[p, 0, L_BEFORE]
    runs[p, last, L_NEXT] = run
    runs[p, 0, L_BEFORE] = run
    runs[p, run, L_NEXT] = 0
    runs[p, run, L_BEFORE] = last
    runs[p, run, L_SEGMENT] = segment
    runs[p, run, L_LOW] = low
    runs[p, run, L_HIGH] = record[S_PINNED]
    runs[p, run, L_OLDER] = record[S_RUN]
    runs[p, run, L_SINCE] = now
    record[S_RUN] = run
    record[S_PINNED] = low
    ps[p, P_PINNED] -= blocks
    ps[p, P_CACHED] += blocks


@kernel
def take(cache: Cache, ps: Int64, counters: Int64, p: int, limit: int, blocks: int, now: int) -> None:
    """Pin anonymous blocks, evicting the least recently used cached ones where none is free."""
    room = max(limit - ps[p, P_PINNED] - ps[p, P_CACHED], 0)
    evicted = min(blocks - room, ps[p, P_CACHED])
    if evicted > 0:
        evict(cache, ps, p, evicted, now)
        counters[EVICTIONS] += evicted
    ps[p, P_PINNED] += blocks


@kernel
def register(cache: Cache, ps: Int64, q: Int64, p: int, r: int, blocks: int, now: int) -> None:
    """r's copies of its prompt's blocks before `blocks` become resident, or are given back for the resident ones."""
    at = q[r, Q_SEGMENT]
    held = q[r, Q_SEGMENT_HELD]
    full = q[r, Q_FULL]
    while full < blocks and at < cache.offset[r + 1]:
        segment = cache.refs[at]
        record = cache.segments[segment, p]
        size = cache.start[segment + 1] - cache.start[segment]
        upto = min(size, held + blocks - full)
        found = min(upto, np.int64(record[S_RESIDENT]))
        ps[p, P_PINNED] -= max(found - held, 0)
        if found > record[S_PINNED]:
            _repin(cache, p, segment, found)
            ps[p, P_PINNED] += found - record[S_PINNED]
            ps[p, P_CACHED] -= found - record[S_PINNED]
        if upto > record[S_RESIDENT]:
            if len(cache.seen) > 0:
                new = upto - record[S_RESIDENT]
                changed(cache, p, cache.start[segment] + record[S_RESIDENT], new, RESIDENT, now)
            record[S_RESIDENT] = upto
        record[S_PINNED] = max(upto, np.int64(record[S_PINNED]))
        full += upto - held
        held = upto
        if upto == size:
            record[S_HOLDERS] += 1
            at += 1
            held = np.int64(0)
    ps[p, P_CUT] = cache.refs[at] if held > 0 else -1
    ps[p, P_CUT_HELD] = held
    q[r, Q_SEGMENT] = at
    q[r, Q_SEGMENT_HELD] = held
    q[r, Q_FULL] = full


@kernel
def pin_prefix(cache: Cache, ps: Int64, q: Int64, p: int, r: int, match: int, now: int) -> None:
    """r, new on P, takes references on its first resident blocks."""
    q[r, Q_TAKEN] = match
    q[r, Q_FULL] = 0
    q[r, Q_SEGMENT] = cache.offset[r]
    q[r, Q_SEGMENT_HELD] = 0
    # As if it had copies of its own.
    ps[p, P_PINNED] += match
    register(cache, ps, q, p, r, match, now)


@kernel
def give_back(cache: Cache, ps: Int64, q: Int64, counters: Int64, p: int, r: int, limit: int, now: int) -> None:
    """Free r's blocks on P; `limit` of `Prefill.cache_blocks`."""
    ps[p, P_PINNED] -= q[r, Q_TAKEN] - q[r, Q_FULL]
    at = q[r, Q_SEGMENT]
    if q[r, Q_SEGMENT_HELD] > 0:
        ps[p, P_CUT] = -1
        if cache.segments[cache.refs[at], p, S_HOLDERS] == 0:
            _unpin(cache, ps, p, cache.refs[at], int(np.int64(0)), now)
    for k in range(at - 1, cache.offset[r] - 1, -1):
        segment = cache.refs[k]
        cache.segments[segment, p, S_HOLDERS] -= 1
        if cache.segments[segment, p, S_HOLDERS] == 0:
            _unpin(cache, ps, p, segment, ps[p, P_CUT_HELD] if ps[p, P_CUT] == segment else int(np.int64(0)), now)
    q[r, Q_TAKEN] = 0
    q[r, Q_FULL] = 0
    q[r, Q_SEGMENT] = cache.offset[r]
    q[r, Q_SEGMENT_HELD] = 0
    evicted = min(ps[p, P_PINNED] + ps[p, P_CACHED] - limit, ps[p, P_CACHED])
    if evicted > 0:
        evict(cache, ps, p, evicted, now)
        counters[EVICTIONS] += evicted
