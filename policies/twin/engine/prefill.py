"""P nodes: prefix cache, token-budget steps, releases (docs/twin.md, "P node"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.law_kernel import prefill_s
from policies.twin.engine.columns import (
    BLOCKED,
    D_END,
    D_QUEUE_HEAD,
    D_QUEUE_TAIL,
    D_QUEUED,
    D_QUEUED_BLOCKS,
    EVICTIONS,
    HITS,
    NEVER,
    P_BACKLOG_REQUESTS,
    P_BACKLOG_TOKENS,
    P_BUSY_NS,
    P_CACHED,
    P_COMPUTED,
    P_END,
    P_HELD,
    P_N_RUNNING,
    P_PINNED,
    P_QUEUE_HEAD,
    P_QUEUED,
    P_RELEASE_HEAD,
    P_STEP_NS,
    P_STEP_TOKENS,
    P_STEPS,
    PREFILL_STEPS,
    Q_CACHED_TOKENS,
    Q_DECODE_NODE,
    Q_DQ_NEXT,
    Q_EXPECTED_NEW,
    Q_FULL,
    Q_OFFSET,
    Q_OFFSET_END,
    Q_PQ_NEXT,
    Q_PREFILL_FINISHED,
    Q_PREFILL_STARTED,
    Q_PROMPT,
    Q_RELEASE_NEXT,
    Q_REST,
    Q_TAKEN,
)
from policies.twin.engine.links import draw, duration_ns, push_back, wake
from policies.twin.engine.parts import Int32, Int64, Prefill


@kernel
def match_blocks(cache: Int32, ids: Int32, q: Int64, block: int, p: int, r: int) -> int:
    """Longest run of resident leading blocks of r's prompt on P, at most (prompt - 1) // block."""
    first = q[r, Q_OFFSET]
    most = min((q[r, Q_PROMPT] - 1) // block, q[r, Q_OFFSET_END] - first)
    k = 0
    while k < most and cache[p, ids[first + k], 3] == 1:
        k += 1
    return k


@kernel
def _unlink(cache: Int32, p: int, block: int) -> None:
    following = cache[p, block, 0]
    before = cache[p, block, 1]
    cache[p, before, 0] = following
    cache[p, following, 1] = before


@kernel
def _pin(cache: Int32, ps: Int64, p: int, block: int) -> None:
    """Take a reference on a resident block."""
    if cache[p, block, 2] == 0:
        _unlink(cache, p, block)
        ps[p, P_PINNED] += 1
        ps[p, P_CACHED] -= 1
    cache[p, block, 2] += 1


@kernel
def _evict(cache: Int32, ps: Int64, counters: Int64, p: int) -> None:
    """The least recently used cached block is gone."""
    victim = cache[p, cache.shape[1] - 1, 0]
    _unlink(cache, p, victim)
    cache[p, victim, 3] = 0
    ps[p, P_CACHED] -= 1
    counters[EVICTIONS] += 1


@kernel
def _release(cache: Int32, ids: Int32, ps: Int64, q: Int64, counters: Int64, p: int, r: int, limit: int) -> None:
    """Give request r's blocks back; `limit` of `Prefill.cache_blocks`."""
    sentinel = cache.shape[1] - 1
    ps[p, P_PINNED] -= q[r, Q_TAKEN] - q[r, Q_FULL]
    ps[p, P_HELD] -= q[r, Q_TAKEN]
    for k in range(q[r, Q_FULL] - 1, -1, -1):
        block = ids[q[r, Q_OFFSET] + k]
        cache[p, block, 2] -= 1
        if cache[p, block, 2] == 0:
            ps[p, P_PINNED] -= 1
            ps[p, P_CACHED] += 1
            last = cache[p, sentinel, 1]
            cache[p, last, 0] = block
            cache[p, block, 1] = last
            cache[p, block, 0] = sentinel
            cache[p, sentinel, 1] = block
    while ps[p, P_CACHED] > 0 and ps[p, P_PINNED] + ps[p, P_CACHED] > limit:
        _evict(cache, ps, counters, p)


@kernel
def _take(cache: Int32, ps: Int64, counters: Int64, p: int, limit: int, blocks: int) -> None:
    """Pin anonymous blocks, evicting the least recently used cached ones where none is free."""
    for _ in range(blocks):
        if ps[p, P_CACHED] > 0 and ps[p, P_PINNED] + ps[p, P_CACHED] >= limit:
            _evict(cache, ps, counters, p)
        ps[p, P_PINNED] += 1


@kernel
def _register(cache: Int32, ids: Int32, ps: Int64, q: Int64, p: int, r: int, done_blocks: int) -> None:
    """Prompt blocks that a chunk completed become resident, or join the resident copy."""
    first = q[r, Q_OFFSET]
    for k in range(q[r, Q_FULL], min(done_blocks, q[r, Q_OFFSET_END] - first)):
        block = ids[first + k]
        if cache[p, block, 3] == 1:
            ps[p, P_PINNED] -= 1
            _pin(cache, ps, p, block)
        else:
            cache[p, block, 3] = 1
            cache[p, block, 2] = 1
        q[r, Q_FULL] = k + 1


@kernel
def _admit(pre: Prefill, ps: Int64, q: Int64, counters: Int64, p: int, budget: int, now: int) -> bool:
    """Admit the queue's head if the blocks of its first chunk fit; False = blocked."""
    cache, ids, b = pre.cache, pre.ids, pre.block_tokens
    r = ps[p, P_QUEUE_HEAD]
    match = match_blocks(cache, ids, q, b, p, r)
    chunk = min(budget, q[r, Q_PROMPT] - match * b)
    need = (match * b + chunk + b - 1) // b - match
    for k in range(match):
        if cache[p, ids[q[r, Q_OFFSET] + k], 2] == 0:
            need += 1
    if need > pre.blocks[p] - ps[p, P_PINNED]:
        return False
    ps[p, P_QUEUE_HEAD] = q[r, Q_PQ_NEXT]
    ps[p, P_QUEUED] -= 1
    for k in range(match):
        _pin(cache, ps, p, ids[q[r, Q_OFFSET] + k])
    q[r, Q_TAKEN] = match
    q[r, Q_FULL] = match
    q[r, Q_REST] = q[r, Q_PROMPT] - match * b
    ps[p, P_BACKLOG_TOKENS] += q[r, Q_REST] - q[r, Q_EXPECTED_NEW]
    q[r, Q_CACHED_TOKENS] = match * b
    q[r, Q_PREFILL_STARTED] = now
    counters[HITS] += match
    pre.running[p, ps[p, P_N_RUNNING]] = r
    ps[p, P_N_RUNNING] += 1
    return True


@kernel
def _schedule(pre: Prefill, ps: Int64, q: Int64, counters: Int64, p: int, now: int) -> None:
    cache, b = pre.cache, pre.block_tokens
    budget = pre.chunk_tokens
    tokens = 0
    chunk_context = 0.0
    k = 0
    while budget > 0:
        if k >= ps[p, P_N_RUNNING]:
            if ps[p, P_QUEUE_HEAD] < 0 or ps[p, P_N_RUNNING] >= pre.max_seqs:
                break
            if not _admit(pre, ps, q, counters, p, budget, now):
                counters[BLOCKED] += 1
                break
        r = pre.running[p, k]
        done = q[r, Q_PROMPT] - q[r, Q_REST]
        chunk = min(budget, q[r, Q_REST])
        blocks = (done + chunk + b - 1) // b - q[r, Q_TAKEN]
        if blocks > pre.blocks[p] - ps[p, P_PINNED]:
            counters[BLOCKED] += 1
            break
        _take(cache, ps, counters, p, pre.cache_blocks[p], blocks)
        q[r, Q_TAKEN] += blocks
        _register(cache, pre.ids, ps, q, p, r, (done + chunk) // b)
        q[r, Q_REST] -= chunk
        budget -= chunk
        tokens += chunk
        chunk_context += np.float64(chunk) * np.float64(done)
        k += 1
    if tokens == 0:
        ps[p, P_END] = NEVER
        return
    noise = 1.0
    if len(pre.noise) > 0:
        noise = pre.noise[draw(pre.seed, 1, p, ps[p, P_STEPS]) >> np.uint64(52)]
    t = np.float64(tokens)
    seconds = prefill_s(pre.law, p, t, chunk_context, np.float64(k))
    ps[p, P_STEP_TOKENS] = tokens
    ps[p, P_STEP_NS] = duration_ns(seconds * noise)
    ps[p, P_END] = now + ps[p, P_STEP_NS]
    if pre.cells.shape[0] > 0:
        cell = pre.cells[p, min(k, pre.cells.shape[1]) - 1, min(tokens // 1024, pre.cells.shape[2] - 1)]
        cell[0] += 1.0
        cell[1] += t
        cell[2] += chunk_context
        cell[3] += seconds


@kernel
def _end_step(pre: Prefill, ps: Int64, ds: Int64, q: Int64, p: int, now: int) -> None:
    """Prompts that are whole are handed off to their Ds."""
    ps[p, P_STEPS] += 1
    ps[p, P_BACKLOG_TOKENS] -= ps[p, P_STEP_TOKENS]
    ps[p, P_BUSY_NS] += ps[p, P_STEP_NS]
    ps[p, P_COMPUTED] += ps[p, P_STEP_TOKENS]
    ps[p, P_STEP_TOKENS] = 0
    kept = 0
    for k in range(ps[p, P_N_RUNNING]):
        r = pre.running[p, k]
        if q[r, Q_REST] > 0:
            pre.running[p, kept] = r
            kept += 1
            continue
        d = q[r, Q_DECODE_NODE]
        q[r, Q_PREFILL_FINISHED] = now
        ps[p, P_BACKLOG_REQUESTS] -= 1
        ps[p, P_HELD] += q[r, Q_TAKEN]
        push_back(ds, d, D_QUEUE_HEAD, D_QUEUE_TAIL, q, Q_DQ_NEXT, r)
        ds[d, D_QUEUED] += 1
        ds[d, D_QUEUED_BLOCKS] += (q[r, Q_PROMPT] + pre.block_tokens - 1) // pre.block_tokens
        wake(ds, d, D_END, now)
    ps[p, P_N_RUNNING] = kept


@kernel
def prefill_boundary(pre: Prefill, ps: Int64, ds: Int64, q: Int64, counters: Int64, p: int, now: int) -> None:
    """End of P's step (if one ran), releases, next step."""
    if ps[p, P_STEP_TOKENS] > 0:
        counters[PREFILL_STEPS] += 1
        _end_step(pre, ps, ds, q, p, now)
    r = ps[p, P_RELEASE_HEAD]
    while r >= 0:
        _release(pre.cache, pre.ids, ps, q, counters, p, r, pre.cache_blocks[p])
        r = q[r, Q_RELEASE_NEXT]
    ps[p, P_RELEASE_HEAD] = -1
    _schedule(pre, ps, q, counters, p, now)
