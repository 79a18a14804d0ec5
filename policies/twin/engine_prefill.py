"""P nodes: prefix cache, token-budget steps, releases (docs/twin.md, "P node"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.kernel_types import LawArrays, PoolArrays
from policies.twin.engine_links import draw, duration_ns, push_back, wake
from policies.twin.engine_state import (
    BLOCKED,
    D_END,
    D_QUEUED,
    D_QUEUED_BLOCKS,
    D_QUEUE_HEAD,
    D_QUEUE_TAIL,
    EVICTIONS,
    HITS,
    NEVER,
    PREFILL_STEPS,
    P_BACKLOG_REQUESTS,
    P_BACKLOG_TOKENS,
    P_BUSY_NS,
    P_CACHED,
    P_COMPUTED,
    P_END,
    P_HELD,
    P_N_RUNNING,
    P_PINNED,
    P_QUEUED,
    P_QUEUE_HEAD,
    P_RELEASE_HEAD,
    P_STEPS,
    P_STEP_NS,
    P_STEP_TOKENS,
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
    Memory,
    Recorder,
    Rules,
)


@kernel
def bucket_factor(edges: np.ndarray, factors: np.ndarray, value: float) -> float:  # type: ignore[type-arg]
    """Factor of the bucket that holds value: number of edges <= value."""
    k = 0
    while k < len(edges) and edges[k] <= value:
        k += 1
    return factors[k]


@kernel
def prefill_seconds(laws: LawArrays, p: int, tokens: float, chunk_context: float) -> float:
    """Noise-free seconds of a prefill step, in `StepLaw.prefill_s`'s order."""
    c = laws.prefill_coef
    poly = c[0] + c[1] * tokens + c[2] * tokens * tokens + c[3] * chunk_context
    return poly * laws.prefill_factor[p] * bucket_factor(laws.prefill_edges, laws.prefill_bucket, tokens)


@kernel
def match_blocks(m: Memory, pool: PoolArrays, p: int, r: int) -> int:
    """Longest run of resident leading blocks of r's prompt on P, at most (prompt - 1) // block."""
    first = m.q[r, Q_OFFSET]
    most = min((m.q[r, Q_PROMPT] - 1) // pool.block_tokens, m.q[r, Q_OFFSET_END] - first)
    k = 0
    while k < most and m.cache[p, m.ids[first + k], 3] == 1:
        k += 1
    return k


@kernel
def _unlink(m: Memory, p: int, block: int) -> None:
    cache = m.cache
    following = cache[p, block, 0]
    before = cache[p, block, 1]
    cache[p, before, 0] = following
    cache[p, following, 1] = before


@kernel
def _pin(m: Memory, p: int, block: int) -> None:
    """Take a reference on a resident block."""
    if m.cache[p, block, 2] == 0:
        _unlink(m, p, block)
        m.ps[p, P_PINNED] += 1
        m.ps[p, P_CACHED] -= 1
    m.cache[p, block, 2] += 1


@kernel
def _release(m: Memory, p: int, r: int) -> None:
    cache = m.cache
    sentinel = cache.shape[1] - 1
    m.ps[p, P_PINNED] -= m.q[r, Q_TAKEN] - m.q[r, Q_FULL]
    m.ps[p, P_HELD] -= m.q[r, Q_TAKEN]
    for k in range(m.q[r, Q_FULL] - 1, -1, -1):
        block = m.ids[m.q[r, Q_OFFSET] + k]
        cache[p, block, 2] -= 1
        if cache[p, block, 2] == 0:
            m.ps[p, P_PINNED] -= 1
            m.ps[p, P_CACHED] += 1
            last = cache[p, sentinel, 1]
            cache[p, last, 0] = block
            cache[p, block, 1] = last
            cache[p, block, 0] = sentinel
            cache[p, sentinel, 1] = block


@kernel
def _take(m: Memory, pool: PoolArrays, p: int, blocks: int) -> None:
    """Pin anonymous blocks, evicting the least recently used cached ones where none is free."""
    cache = m.cache
    sentinel = cache.shape[1] - 1
    for _ in range(blocks):
        if m.ps[p, P_PINNED] + m.ps[p, P_CACHED] >= pool.prefill_blocks[p]:
            victim = cache[p, sentinel, 0]
            _unlink(m, p, victim)
            cache[p, victim, 3] = 0
            m.ps[p, P_CACHED] -= 1
            m.counters[EVICTIONS] += 1
        m.ps[p, P_PINNED] += 1


@kernel
def _register(m: Memory, p: int, r: int, done_blocks: int) -> None:
    """Prompt blocks that a chunk completed become resident, or join the resident copy."""
    cache = m.cache
    known = m.q[r, Q_OFFSET_END] - m.q[r, Q_OFFSET]
    for k in range(m.q[r, Q_FULL], min(done_blocks, known)):
        block = m.ids[m.q[r, Q_OFFSET] + k]
        if cache[p, block, 3] == 1:
            m.ps[p, P_PINNED] -= 1
            _pin(m, p, block)
        else:
            cache[p, block, 3] = 1
            cache[p, block, 2] = 1
        m.q[r, Q_FULL] = k + 1


@kernel
def _admit(m: Memory, pool: PoolArrays, p: int, budget: int, now: int) -> bool:
    """Admit the queue's head if the blocks of its first chunk fit; False = blocked."""
    r = m.ps[p, P_QUEUE_HEAD]
    b = pool.block_tokens
    match = match_blocks(m, pool, p, r)
    chunk = min(budget, m.q[r, Q_PROMPT] - match * b)
    unpinned = 0
    for k in range(match):
        if m.cache[p, m.ids[m.q[r, Q_OFFSET] + k], 2] == 0:
            unpinned += 1
    need = (match * b + chunk + b - 1) // b - match + unpinned
    if need > pool.prefill_blocks[p] - m.ps[p, P_PINNED]:
        return False
    m.ps[p, P_QUEUE_HEAD] = m.q[r, Q_PQ_NEXT]
    m.ps[p, P_QUEUED] -= 1
    for k in range(match):
        _pin(m, p, m.ids[m.q[r, Q_OFFSET] + k])
    m.q[r, Q_TAKEN] = match
    m.q[r, Q_FULL] = match
    m.q[r, Q_REST] = m.q[r, Q_PROMPT] - match * b
    m.ps[p, P_BACKLOG_TOKENS] += m.q[r, Q_REST] - m.q[r, Q_EXPECTED_NEW]
    m.q[r, Q_CACHED_TOKENS] = match * b
    m.q[r, Q_PREFILL_STARTED] = now
    m.counters[HITS] += match
    m.running[p, m.ps[p, P_N_RUNNING]] = r
    m.ps[p, P_N_RUNNING] += 1
    return True


@kernel
def _schedule(
    m: Memory, rec: Recorder, rules: Rules, laws: LawArrays, pool: PoolArrays, p: int, now: int
) -> None:
    b = pool.block_tokens
    budget = pool.chunk_tokens
    tokens = 0
    chunk_context = 0.0
    prompts = 0
    k = 0
    while budget > 0:
        if k >= m.ps[p, P_N_RUNNING]:
            if m.ps[p, P_QUEUE_HEAD] < 0 or m.ps[p, P_N_RUNNING] >= rules.prefill_max:
                break
            if not _admit(m, pool, p, budget, now):
                m.counters[BLOCKED] += 1
                break
        r = m.running[p, k]
        done = m.q[r, Q_PROMPT] - m.q[r, Q_REST]
        chunk = min(budget, m.q[r, Q_REST])
        blocks = (done + chunk + b - 1) // b - m.q[r, Q_TAKEN]
        if blocks > pool.prefill_blocks[p] - m.ps[p, P_PINNED]:
            m.counters[BLOCKED] += 1
            break
        _take(m, pool, p, blocks)
        m.q[r, Q_TAKEN] += blocks
        _register(m, p, r, (done + chunk) // b)
        m.q[r, Q_REST] -= chunk
        budget -= chunk
        tokens += chunk
        chunk_context += np.float64(chunk) * np.float64(done)
        prompts += 1
        k += 1
    if tokens == 0:
        m.ps[p, P_END] = NEVER
        return
    noise = 1.0
    if len(rules.noise_p) > 0:
        noise = rules.noise_p[draw(rules.seed, 1, p, m.ps[p, P_STEPS]) >> np.uint64(52)]
    seconds = prefill_seconds(laws, p, np.float64(tokens), chunk_context)
    m.ps[p, P_STEP_TOKENS] = tokens
    m.ps[p, P_STEP_NS] = duration_ns(seconds * noise)
    m.ps[p, P_END] = now + m.ps[p, P_STEP_NS]
    if rec.cell_p.shape[0] > 0:
        cell = rec.cell_p[p, min(prompts, rec.cell_p.shape[1]) - 1, min(tokens // 1024, rec.cell_p.shape[2] - 1)]
        cell[0] += 1.0
        cell[1] += np.float64(tokens)
        cell[2] += chunk_context
        cell[3] += seconds


@kernel
def prefill_boundary(
    m: Memory, rec: Recorder, rules: Rules, laws: LawArrays, pool: PoolArrays, p: int, now: int
) -> None:
    """End of P's step (if one ran), releases, next step."""
    if m.ps[p, P_STEP_TOKENS] > 0:
        m.counters[PREFILL_STEPS] += 1
        m.ps[p, P_STEPS] += 1
        m.ps[p, P_BACKLOG_TOKENS] -= m.ps[p, P_STEP_TOKENS]
        m.ps[p, P_BUSY_NS] += m.ps[p, P_STEP_NS]
        m.ps[p, P_COMPUTED] += m.ps[p, P_STEP_TOKENS]
        m.ps[p, P_STEP_TOKENS] = 0
        kept = 0
        for k in range(m.ps[p, P_N_RUNNING]):
            r = m.running[p, k]
            if m.q[r, Q_REST] > 0:
                m.running[p, kept] = r
                kept += 1
                continue
            d = m.q[r, Q_DECODE_NODE]
            m.q[r, Q_PREFILL_FINISHED] = now
            m.ps[p, P_BACKLOG_REQUESTS] -= 1
            m.ps[p, P_HELD] += m.q[r, Q_TAKEN]
            push_back(m.ds, d, D_QUEUE_HEAD, D_QUEUE_TAIL, m.q, Q_DQ_NEXT, r)
            m.ds[d, D_QUEUED] += 1
            m.ds[d, D_QUEUED_BLOCKS] += (m.q[r, Q_PROMPT] + pool.block_tokens - 1) // pool.block_tokens
            wake(m.ds, d, D_END, now)
        m.ps[p, P_N_RUNNING] = kept
    r = m.ps[p, P_RELEASE_HEAD]
    while r >= 0:
        _release(m, p, r)
        r = m.q[r, Q_RELEASE_NEXT]
    m.ps[p, P_RELEASE_HEAD] = -1
    _schedule(m, rec, rules, laws, pool, p, now)
