"""P nodes: prefix cache, token-budget steps, releases (docs/twin.md, "P node"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.law_kernel import prefill_s
from policies.twin.engine.cache import evict, give_back, next_time_out, pin_prefix, prefix, register, take, time_out
from policies.twin.engine.columns import (
    BLOCKED,
    HANDED,
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
    P_QUEUED,
    P_RELEASE_HEAD,
    P_STEP_NS,
    P_STEP_TOKENS,
    P_STEPS,
    PREFILL_STEPS,
    Q_CACHED_TOKENS,
    Q_EXPECTED_NEW,
    Q_PQ_NEXT,
    Q_PREFILL_FINISHED,
    Q_PREFILL_NODE,
    Q_PREFILL_STARTED,
    Q_PRIORITY,
    Q_PROMPT,
    Q_RELEASE_NEXT,
    Q_RELEASED,
    Q_REST,
    Q_TAKEN,
    TIMED_OUT,
)
from policies.twin.engine.links import draw, duration_ns, push_back, take_out, wake_prefill
from policies.twin.engine.parts import Int64, Prefill

FIRST, LAST = 0, 1  # columns of Prefill.queues


@kernel
def enqueue(queues: Int64, ps: Int64, q: Int64, p: int, r: int, now: int) -> None:
    """A placed request joins P's queue."""
    q[r, Q_REST] = q[r, Q_PROMPT]
    ps[p, P_BACKLOG_TOKENS] += q[r, Q_EXPECTED_NEW]
    ps[p, P_BACKLOG_REQUESTS] += 1
    push_back(queues, _queue(queues, ps, q, p, r), FIRST, LAST, q, Q_PQ_NEXT, r)
    ps[p, P_QUEUED] += 1
    wake_prefill(ps, p, now)


@kernel
def _queue(queues: Int64, ps: Int64, q: Int64, p: int, r: int) -> int:
    """Row of the queue on P that request r belongs to."""
    row: int = p * (len(queues) // len(ps)) + q[r, Q_PRIORITY]
    return row


@kernel
def _admit(pre: Prefill, ps: Int64, q: Int64, counters: Int64, p: int, budget: int, now: int) -> bool:
    """Admit the queue's head if the blocks of its first chunk fit; False = blocked."""
    b = pre.block_tokens
    queue = p * pre.priorities
    while pre.queues[queue, FIRST] < 0:
        queue += 1
    r = pre.queues[queue, FIRST]
    match, unpinned = prefix(pre.cache, p, r, (q[r, Q_PROMPT] - 1) // b)
    chunk = min(budget, q[r, Q_PROMPT] - match * b)
    need = (match * b + chunk + b - 1) // b - match + unpinned
    if need > pre.blocks[p] - ps[p, P_PINNED]:
        return False
    pre.queues[queue, FIRST] = q[r, Q_PQ_NEXT]
    ps[p, P_QUEUED] -= 1
    pin_prefix(pre.cache, ps, q, p, r, match, now)
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
    b = pre.block_tokens
    budget = pre.chunk_tokens
    tokens = 0
    starts = 0
    chunk_context = 0.0
    k = 0
    while budget > 0:
        if k >= ps[p, P_N_RUNNING]:
            if ps[p, P_QUEUED] == 0 or ps[p, P_N_RUNNING] >= pre.max_seqs:
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
        take(pre.cache, ps, counters, p, pre.cache_blocks[p], blocks, now)
        q[r, Q_TAKEN] += blocks
        register(pre.cache, ps, q, p, r, (done + chunk) // b, now)
        q[r, Q_REST] -= chunk
        budget -= chunk
        tokens += chunk
        starts += done
        chunk_context += np.float64(chunk) * np.float64(done)
        k += 1
    if tokens == 0:
        ps[p, P_END] = next_time_out(pre.cache, ps, p, pre.ttl[p])
        return
    noise = 1.0
    if len(pre.noise) > 0:
        noise = pre.noise[draw(pre.seed, 1, p, ps[p, P_STEPS]) >> np.uint64(52)]
    t = np.float64(k * ((starts + tokens) // k - starts // k) if pre.mean_tokens == 1 else tokens)
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
def _end_step(pre: Prefill, ps: Int64, q: Int64, counters: Int64, p: int, now: int) -> None:
    """Prompts that are whole go into `pre.handed`, in running order."""
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
        q[r, Q_PREFILL_FINISHED] = now
        ps[p, P_BACKLOG_REQUESTS] -= 1
        ps[p, P_HELD] += q[r, Q_TAKEN]
        pre.handed[counters[HANDED]] = r
        counters[HANDED] += 1
    ps[p, P_N_RUNNING] = kept


@kernel
def _release(pre: Prefill, ps: Int64, q: Int64, counters: Int64, p: int, now: int) -> None:
    """Free the blocks of requests whose release waits."""
    r = ps[p, P_RELEASE_HEAD]
    while r >= 0:
        ps[p, P_HELD] -= q[r, Q_TAKEN]
        give_back(pre.cache, ps, q, counters, p, r, pre.cache_blocks[p], now)
        q[r, Q_RELEASED] = now
        r = q[r, Q_RELEASE_NEXT]
    ps[p, P_RELEASE_HEAD] = -1


@kernel
def prefill_boundary(pre: Prefill, ps: Int64, q: Int64, counters: Int64, p: int, now: int) -> None:
    """End of P's step (if one ran), releases, next step. The caller hands on what `pre.handed` then holds."""
    if ps[p, P_STEP_TOKENS] > 0:
        counters[PREFILL_STEPS] += 1
        _end_step(pre, ps, q, counters, p, now)
    _release(pre, ps, q, counters, p, now)
    if pre.ttl[p] < NEVER:
        counters[TIMED_OUT] += time_out(pre.cache, ps, p, now - pre.ttl[p], now)
    _schedule(pre, ps, q, counters, p, now)


@kernel
def drop_from_p(pre: Prefill, ps: Int64, q: Int64, counters: Int64, r: int, now: int) -> None:
    """Request r, whose release does not wait, leaves P at once; the step under way lasts as long as before."""
    p = q[r, Q_PREFILL_NODE]
    if q[r, Q_PREFILL_FINISHED] < 0:
        ps[p, P_BACKLOG_REQUESTS] -= 1
    if q[r, Q_PREFILL_STARTED] < 0:
        take_out(pre.queues, _queue(pre.queues, ps, q, p, r), FIRST, LAST, q, Q_PQ_NEXT, r)
        ps[p, P_QUEUED] -= 1
        ps[p, P_BACKLOG_TOKENS] -= q[r, Q_EXPECTED_NEW]
    else:
        if q[r, Q_PREFILL_FINISHED] >= 0:
            ps[p, P_HELD] -= q[r, Q_TAKEN]
        else:
            ps[p, P_BACKLOG_TOKENS] -= q[r, Q_REST]
            kept = 0
            for k in range(ps[p, P_N_RUNNING]):
                if pre.running[p, k] != r:
                    pre.running[p, kept] = pre.running[p, k]
                    kept += 1
            ps[p, P_N_RUNNING] = kept
        give_back(pre.cache, ps, q, counters, p, r, pre.cache_blocks[p], now)
        q[r, Q_RELEASED] = now
    wake_prefill(ps, p, now)


@kernel
def restart_p(pre: Prefill, ps: Int64, q: Int64, counters: Int64, p: int, now: int) -> None:
    """P, which no request waits for or runs on any more, loses its step and all that it has cached."""
    ps[p, P_BACKLOG_TOKENS] -= ps[p, P_STEP_TOKENS]
    ps[p, P_STEP_TOKENS] = 0
    ps[p, P_END] = NEVER
    _release(pre, ps, q, counters, p, now)
    evict(pre.cache, ps, p, ps[p, P_CACHED], now)
