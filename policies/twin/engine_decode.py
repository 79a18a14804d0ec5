"""D nodes: reservations, continuous batching, growth, preemption (docs/twin.md, "D node"). Kernels.

A decode step is O(1): finishes are keyed by step number, block growth is counted by step modulo block size. Between
events a D that waits for nothing runs its steps in a tight loop (`_run_ahead`).
"""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.kernel_types import LawArrays, PoolArrays
from policies.twin.engine_links import draw, duration_ns, push_back, queue_release, start_transfer
from policies.twin.engine_prefill import bucket_factor
from policies.twin.engine_state import (
    DECODE_STEPS,
    D_END,
    D_FREED,
    D_GENERATED,
    D_INFLIGHT_BLOCKS,
    D_LAND_HEAD,
    D_N_FRESH,
    D_N_PREEMPTED,
    D_N_RUNNING,
    D_PREEMPTED_HEAD,
    D_QUEUED,
    D_QUEUED_BLOCKS,
    D_QUEUE_HEAD,
    D_RECEIVING,
    D_RECEIVING_TOKENS,
    D_RUNNING_BLOCKS,
    D_STEPS,
    D_STEP_NS,
    D_STEP_SEQUENCES,
    D_TOKENS,
    JOINS,
    NEVER,
    NEXT_FLOW,
    PREEMPTIONS,
    Q_ACTIVATED,
    Q_DQ_NEXT,
    Q_FINISHED,
    Q_FIRST_TOKEN,
    Q_JOIN,
    Q_LAND_NEXT,
    Q_MADE0,
    Q_OUTPUT,
    Q_PREEMPTED_NEXT,
    Q_PREEMPTIONS,
    Q_PROMPT,
    Q_RUNS,
    Q_STATUS,
    Q_STEP0,
    Float64,
    Int64,
    Memory,
    Recorder,
    Rules,
)

COMPLETED, FAILED = 0, 3


@kernel
def decode_seconds(laws: LawArrays, d: int, sequences: float, tokens: float) -> float:
    """Noise-free seconds of a decode step, in `StepLaw.decode_s`'s order."""
    c = laws.decode_coef
    x = tokens if tokens < laws.decode_cap else laws.decode_cap
    poly = c[0] + c[1] * sequences + c[2] * x + c[3] * x * x
    return poly * laws.decode_factor[d] * bucket_factor(laws.decode_edges, laws.decode_bucket, sequences)


@kernel
def _before(step_a: int, request_a: int, step_b: int, request_b: int) -> bool:
    return step_a < step_b or (step_a == step_b and request_a < request_b)


@kernel
def _heap_push(heap: Int64, size: int, step: int, request: int) -> None:
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if not _before(step, request, heap[up, 0], heap[up, 1]):
            break
        heap[i, 0] = heap[up, 0]
        heap[i, 1] = heap[up, 1]
        i = up
    heap[i, 0] = step
    heap[i, 1] = request


@kernel
def _heap_remove(heap: Int64, size: int, at: int) -> None:
    """Remove the entry at a place; the heap then has size - 1 entries."""
    last = size - 1
    step = heap[last, 0]
    request = heap[last, 1]
    i = at
    while i > 0:
        up = (i - 1) >> 1
        if not _before(step, request, heap[up, 0], heap[up, 1]):
            break
        heap[i, 0] = heap[up, 0]
        heap[i, 1] = heap[up, 1]
        i = up
    while True:
        down = 2 * i + 1
        if down >= last:
            break
        if down + 1 < last and _before(heap[down + 1, 0], heap[down + 1, 1], heap[down, 0], heap[down, 1]):
            down += 1
        if not _before(heap[down, 0], heap[down, 1], step, request):
            break
        heap[i, 0] = heap[down, 0]
        heap[i, 1] = heap[down, 1]
        i = down
    heap[i, 0] = step
    heap[i, 1] = request


@kernel
def _blocks(tokens: int, block: int) -> int:
    return (tokens + block - 1) // block


@kernel
def _join(m: Memory, pool: PoolArrays, d: int, r: int) -> None:
    """r runs from the step that starts now."""
    s = m.ds[d, D_STEPS]
    context = m.q[r, Q_PROMPT] + m.q[r, Q_MADE0]
    m.q[r, Q_STEP0] = s
    m.q[r, Q_RUNS] = 1
    m.counters[JOINS] += 1
    m.q[r, Q_JOIN] = m.counters[JOINS]
    target = s + m.q[r, Q_OUTPUT] - m.q[r, Q_MADE0]
    _heap_push(m.heap[d], m.ds[d, D_N_RUNNING], target, r)
    m.ds[d, D_N_RUNNING] += 1
    m.ds[d, D_TOKENS] += context
    m.growth[d, (s - context) % pool.block_tokens] += 1
    if m.q[r, Q_FIRST_TOKEN] < 0:
        m.fresh[d, m.ds[d, D_N_FRESH]] = r
        m.ds[d, D_N_FRESH] += 1


@kernel
def _leave(m: Memory, pool: PoolArrays, d: int, at: int) -> None:
    """The running sequence at a heap place stops running and frees its blocks."""
    s = m.ds[d, D_STEPS]
    r = m.heap[d, at, 1]
    _heap_remove(m.heap[d], m.ds[d, D_N_RUNNING], at)
    m.ds[d, D_N_RUNNING] -= 1
    made = m.q[r, Q_MADE0] + s - m.q[r, Q_STEP0]
    context = m.q[r, Q_PROMPT] + made
    blocks = _blocks(context, pool.block_tokens)
    m.ds[d, D_TOKENS] -= context
    m.ds[d, D_RUNNING_BLOCKS] -= blocks
    m.ds[d, D_FREED] += blocks
    m.growth[d, (s - context) % pool.block_tokens] -= 1
    m.q[r, Q_RUNS] = 0
    m.q[r, Q_MADE0] = made


@kernel
def _end_step(m: Memory, pool: PoolArrays, d: int, now: int) -> None:
    n = m.ds[d, D_STEP_SEQUENCES]
    m.counters[DECODE_STEPS] += 1
    m.ds[d, D_STEPS] += 1
    m.ds[d, D_TOKENS] += n
    m.ds[d, D_GENERATED] += n
    _moments(m.moments, d, n, m.ds[d, D_STEP_NS])
    m.ds[d, D_STEP_SEQUENCES] = 0
    for k in range(m.ds[d, D_N_FRESH]):
        r = m.fresh[d, k]
        if m.q[r, Q_RUNS] == 1:
            m.q[r, Q_FIRST_TOKEN] = now
    m.ds[d, D_N_FRESH] = 0
    while m.ds[d, D_N_RUNNING] > 0 and m.heap[d, 0, 0] <= m.ds[d, D_STEPS]:
        r = m.heap[d, 0, 1]
        _leave(m, pool, d, 0)
        m.q[r, Q_FINISHED] = now
        m.q[r, Q_STATUS] = COMPLETED


@kernel
def _moments(moments: Int64, d: int, n: int, ns: int) -> None:
    moments[d, 0] += n
    moments[d, 1] += ns
    moments[d, 2] += n * n
    moments[d, 3] += n * ns


@kernel
def _readmit(m: Memory, rules: Rules, laws: LawArrays, pool: PoolArrays, d: int) -> float:
    """Preempted sequences that fit run again; seconds that their recompute adds to the next step."""
    extra = 0.0
    c = laws.prefill_coef
    while m.ds[d, D_PREEMPTED_HEAD] >= 0 and m.ds[d, D_N_RUNNING] < rules.decode_max:
        r = m.ds[d, D_PREEMPTED_HEAD]
        context = m.q[r, Q_PROMPT] + m.q[r, Q_MADE0]
        blocks = _blocks(context, pool.block_tokens)
        if m.ds[d, D_RUNNING_BLOCKS] + m.ds[d, D_INFLIGHT_BLOCKS] + blocks > pool.decode_blocks[d]:
            break
        m.ds[d, D_PREEMPTED_HEAD] = m.q[r, Q_PREEMPTED_NEXT]
        m.ds[d, D_N_PREEMPTED] -= 1
        m.ds[d, D_QUEUED_BLOCKS] -= blocks
        m.ds[d, D_RUNNING_BLOCKS] += blocks
        _join(m, pool, d, r)
        t = np.float64(context)
        extra += c[0] + c[1] * t + c[2] * t * t
    return extra


@kernel
def _activate(m: Memory, rules: Rules, pool: PoolArrays, d: int, now: int) -> int:
    """Landed requests start to run; their number."""
    activated = 0
    while m.ds[d, D_LAND_HEAD] >= 0 and m.ds[d, D_N_RUNNING] < rules.decode_max:
        r = m.ds[d, D_LAND_HEAD]
        m.ds[d, D_LAND_HEAD] = m.q[r, Q_LAND_NEXT]
        blocks = _blocks(m.q[r, Q_PROMPT], pool.block_tokens)
        m.ds[d, D_INFLIGHT_BLOCKS] -= blocks
        m.ds[d, D_RUNNING_BLOCKS] += blocks
        m.ds[d, D_RECEIVING] -= 1
        m.ds[d, D_RECEIVING_TOKENS] -= m.q[r, Q_PROMPT]
        m.q[r, Q_ACTIVATED] = now
        if rules.release_on_activation == 1:
            queue_release(m, r, now)
        _join(m, pool, d, r)
        activated += 1
    return activated


@kernel
def _reserve(
    m: Memory, rules: Rules, laws: LawArrays, pool: PoolArrays, d: int, activated: int, now: int
) -> None:
    reserved = 0
    while m.ds[d, D_QUEUE_HEAD] >= 0:
        if rules.reservations > 0 and m.ds[d, D_N_RUNNING] > 0 and reserved >= rules.reservations + activated:
            break
        r = m.ds[d, D_QUEUE_HEAD]
        blocks = _blocks(m.q[r, Q_PROMPT], pool.block_tokens)
        if m.ds[d, D_RUNNING_BLOCKS] + m.ds[d, D_INFLIGHT_BLOCKS] + blocks > pool.decode_blocks[d]:
            break
        m.ds[d, D_QUEUE_HEAD] = m.q[r, Q_DQ_NEXT]
        m.ds[d, D_QUEUED] -= 1
        m.ds[d, D_QUEUED_BLOCKS] -= blocks
        m.ds[d, D_INFLIGHT_BLOCKS] += blocks
        m.ds[d, D_RECEIVING] += 1
        m.ds[d, D_RECEIVING_TOKENS] += m.q[r, Q_PROMPT]
        reserved += 1
        start_transfer(m, rules, laws, pool, r, now)


@kernel
def _grow(m: Memory, pool: PoolArrays, d: int) -> None:
    """Blocks for the step that starts now; the most recently joined sequences make room."""
    slot = m.ds[d, D_STEPS] % pool.block_tokens
    while m.ds[d, D_N_RUNNING] > 0:
        need = m.growth[d, slot]
        if m.ds[d, D_RUNNING_BLOCKS] + m.ds[d, D_INFLIGHT_BLOCKS] + need <= pool.decode_blocks[d]:
            break
        newest = 0
        for k in range(1, m.ds[d, D_N_RUNNING]):
            if m.q[m.heap[d, k, 1], Q_JOIN] > m.q[m.heap[d, newest, 1], Q_JOIN]:
                newest = k
        r = m.heap[d, newest, 1]
        alone = m.ds[d, D_N_RUNNING] == 1 and m.ds[d, D_INFLIGHT_BLOCKS] == 0
        _leave(m, pool, d, newest)
        if alone:
            m.q[r, Q_STATUS] = FAILED
            break
        m.counters[PREEMPTIONS] += 1
        m.q[r, Q_PREEMPTIONS] += 1
        m.moments[d, 4] += 1
        m.q[r, Q_PREEMPTED_NEXT] = m.ds[d, D_PREEMPTED_HEAD]
        m.ds[d, D_PREEMPTED_HEAD] = r
        m.ds[d, D_N_PREEMPTED] += 1
        m.ds[d, D_QUEUED_BLOCKS] += _blocks(m.q[r, Q_PROMPT] + m.q[r, Q_MADE0], pool.block_tokens)
    m.ds[d, D_RUNNING_BLOCKS] += m.growth[d, slot]


@kernel
def waits(m: Memory, d: int) -> bool:
    """D's next boundary may touch more than D itself, or needs every rule: it must not be run ahead of others."""
    return m.ds[d, D_QUEUE_HEAD] >= 0 or m.ds[d, D_LAND_HEAD] >= 0 or m.ds[d, D_PREEMPTED_HEAD] >= 0 or m.ds[d, D_N_FRESH] > 0


@kernel
def _start_step(
    m: Memory, rec: Recorder, rules: Rules, laws: LawArrays, pool: PoolArrays, d: int, extra: float, now: int, horizon: int
) -> None:
    """The next step, and while nothing else happens before `horizon`, the steps after it."""
    n = m.ds[d, D_N_RUNNING]
    if n == 0:
        m.ds[d, D_N_FRESH] = 0
        stuck = m.ds[d, D_INFLIGHT_BLOCKS] == 0 and (m.ds[d, D_QUEUE_HEAD] >= 0 or m.ds[d, D_PREEMPTED_HEAD] >= 0)
        m.ds[d, D_END] = now if stuck else NEVER
        return
    ahead = not waits(m, d)
    noisy = len(rules.noise_d) > 0
    block = pool.block_tokens
    step = m.ds[d, D_STEPS]
    tokens = m.ds[d, D_TOKENS]
    sequences = np.float64(n)
    bucket = bucket_factor(laws.decode_edges, laws.decode_bucket, sequences)
    c = laws.decode_coef
    factor = laws.decode_factor[d]
    start = now
    done = 0
    while True:
        x = np.float64(tokens)
        if x > laws.decode_cap:
            x = laws.decode_cap
        seconds = (c[0] + c[1] * sequences + c[2] * x + c[3] * x * x) * factor * bucket
        if rec.cell_d.shape[0] > 0:
            _cell(rec.cell_d, d, n, tokens, seconds)
        noise = 1.0
        if noisy:
            noise = rules.noise_d[draw(rules.seed, 2, d, step) >> np.uint64(52)]
        ns = duration_ns(seconds * noise + extra)
        extra = 0.0
        end = start + ns
        if not ahead or end >= horizon or m.heap[d, 0, 0] <= step + 1:
            break
        need = m.growth[d, (step + 1) % block]
        if m.ds[d, D_RUNNING_BLOCKS] + m.ds[d, D_INFLIGHT_BLOCKS] + need > pool.decode_blocks[d]:
            break
        step += 1
        done += 1
        tokens += n
        m.ds[d, D_RUNNING_BLOCKS] += need
        _moments(m.moments, d, n, ns)
        start = end
    m.ds[d, D_STEPS] = step
    m.ds[d, D_TOKENS] = tokens
    m.ds[d, D_GENERATED] += done * n
    m.counters[DECODE_STEPS] += done
    m.ds[d, D_STEP_SEQUENCES] = n
    m.ds[d, D_STEP_NS] = ns
    m.ds[d, D_END] = end


@kernel
def _cell(cells: Float64, d: int, n: int, tokens: int, seconds: float) -> None:
    cell = cells[d, min(n // 8, cells.shape[1] - 1), min(tokens // 32768, cells.shape[2] - 1)]
    cell[0] += 1.0
    cell[1] += np.float64(n)
    cell[2] += np.float64(tokens)
    cell[3] += seconds


@kernel
def decode_boundary(
    m: Memory, rec: Recorder, rules: Rules, laws: LawArrays, pool: PoolArrays, d: int, now: int, horizon: int
) -> None:
    """End of D's step (if one ran), readmissions, activations, reservations, growth, next step."""
    if m.ds[d, D_STEP_SEQUENCES] > 0:
        _end_step(m, pool, d, now)
    extra = _readmit(m, rules, laws, pool, d)
    activated = _activate(m, rules, pool, d, now)
    if m.ds[d, D_PREEMPTED_HEAD] < 0:
        _reserve(m, rules, laws, pool, d, activated, now)
    _grow(m, pool, d)
    _start_step(m, rec, rules, laws, pool, d, extra, now, min(horizon, m.counters[NEXT_FLOW]))
