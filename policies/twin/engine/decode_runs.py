"""Sequences that run on a D: how they come, go, and make room for each other (docs/twin.md, "D node"). Kernels."""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.law_kernel import prefill_s
from policies.twin.engine.columns import (
    D_FREED,
    D_INFLIGHT_BLOCKS,
    D_LAST_END,
    D_N_FRESH,
    D_N_PREEMPTED,
    D_N_RUNNING,
    D_N_STALLED,
    D_PARTIAL,
    D_PREEMPTED_HEAD,
    D_QUEUED_BLOCKS,
    D_RECEIVING,
    D_RUNNING_BLOCKS,
    D_SKIP,
    D_STALLED_HEAD,
    D_STEPS,
    D_SWAPPED,
    D_TOKENS,
    GONE,
    JOINS,
    PREEMPTIONS,
    Q_ENTERED,
    Q_JOIN,
    Q_LAST_TOKEN,
    Q_MADE0,
    Q_OUTPUT,
    Q_PREEMPTED_NEXT,
    Q_PREEMPTIONS,
    Q_PROMPT,
    Q_REST_ON_D,
    Q_RUNS,
    Q_SLO_CLASS,
    Q_STATUS,
    Q_STEP0,
    Q_WAITS,
)
from policies.twin.engine.decode_blocks import (
    blocks_of,
    book_on_d,
    booking_fits,
    leading,
    refer,
    release,
    share,
    stage_end,
    take,
)
from policies.twin.engine.heap import heap_push, heap_remove
from policies.twin.engine.parts import Decode, Int32, Int64

FAILED = 3
ACTIVATED, PREEMPTED = 1, 2
STAGED = 2  # of Decode.books


@kernel
def tokens_to_go(dec: Decode, q: Int64, r: int, made: int) -> int:
    """Tokens that r, which has made so many, makes until its answer or its stage ends."""
    end = q[r, Q_OUTPUT]
    if dec.books == STAGED:
        end = min(end, stage_end(dec, made))
    return int(end - made)


@kernel
def enter(dec: Decode, ds: Int64, q: Int64, d: int, r: int) -> None:
    """r, of which Q_MADE0 tokens are made, makes one in each step from the one that starts now."""
    s = ds[d, D_STEPS]
    made = q[r, Q_MADE0]
    context = q[r, Q_PROMPT] + made
    q[r, Q_STEP0] = s
    q[r, Q_ENTERED] = s
    q[r, Q_RUNS] = 1
    heap_push(dec.heap[d], ds[d, D_N_RUNNING], s + tokens_to_go(dec, q, r, made), r)
    ds[d, D_N_RUNNING] += 1
    dec.running_by_class[d, q[r, Q_SLO_CLASS]] += 1
    ds[d, D_TOKENS] += context
    slot = (s - context + dec.lag) % dec.block_tokens
    dec.growth[d, slot] += 1
    if dec.lag == 1 and slot == s % dec.block_tokens:
        ds[d, D_SKIP] += 1
    dec.fresh[d, ds[d, D_N_FRESH]] = r
    ds[d, D_N_FRESH] += 1


@kernel
def join(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int, r: int) -> None:
    """r runs, as the youngest."""
    counters[JOINS] += 1
    q[r, Q_JOIN] = counters[JOINS]
    enter(dec, ds, q, d, r)


@kernel
def pause(heap: Int64, growth: Int32, by_class: Int64, ds: Int64, q: Int64, lag: int, d: int, at: int) -> int:
    """The sequence at a heap place makes no more tokens and keeps its blocks; which it is."""
    s = ds[d, D_STEPS]
    r = heap[at, 1]
    heap_remove(heap, ds[d, D_N_RUNNING], at)
    ds[d, D_N_RUNNING] -= 1
    made = q[r, Q_MADE0] + s - q[r, Q_STEP0]
    context = q[r, Q_PROMPT] + made
    ds[d, D_TOKENS] -= context
    slot = (s - context + lag) % len(growth)
    growth[slot] -= 1
    if lag == 1 and slot == s % len(growth) and q[r, Q_STEP0] == s:
        ds[d, D_SKIP] -= 1
    q[r, Q_RUNS] = 0
    q[r, Q_MADE0] = made
    by_class[q[r, Q_SLO_CLASS]] -= 1
    if s > q[r, Q_ENTERED]:
        q[r, Q_LAST_TOKEN] = ds[d, D_LAST_END]
    return int(r)


@kernel
def give_back(dec: Decode, ds: Int64, q: Int64, d: int, r: int, held: int, tokens: int) -> None:
    """r, which ran, gives its blocks back: `held` ones, of which so many tokens fill the first."""
    freed = held
    if dec.share == 1:
        freed = release(dec, ds, q, d, r, held, tokens)
    ds[d, D_RUNNING_BLOCKS] -= freed
    ds[d, D_FREED] += freed


@kernel
def leave(dec: Decode, ds: Int64, q: Int64, d: int, at: int) -> int:
    """The sequence at a heap place stops running and frees its blocks; which it is."""
    r = pause(dec.heap[d], dec.growth[d], dec.running_by_class[d], ds, q, dec.lag, d, at)
    lag = dec.lag if ds[d, D_STEPS] > q[r, Q_STEP0] else 0
    computed = q[r, Q_PROMPT] + q[r, Q_MADE0] - lag
    give_back(dec, ds, q, d, r, blocks_of(computed, dec.block_tokens), computed)
    return r


@kernel
def running(ds: Int64, d: int) -> int:
    """Sequences that run, also without making tokens."""
    return int(ds[d, D_N_RUNNING] + ds[d, D_N_STALLED] + (1 if ds[d, D_PARTIAL] >= 0 else 0))


@kernel
def lacking(dec: Decode, ds: Int64, q: Int64, d: int, chunk: int) -> int:
    """Blocks that the next step takes, `chunk` tokens of the sequence that computes its context again in it."""
    need = dec.growth[d, ds[d, D_STEPS] % dec.block_tokens] - ds[d, D_SKIP]
    r = ds[d, D_PARTIAL]
    if r >= 0:
        computed = q[r, Q_PROMPT] + q[r, Q_MADE0] - q[r, Q_REST_ON_D]
        need += blocks_of(computed + chunk, dec.block_tokens) - blocks_of(computed, dec.block_tokens)
    return int(need)


@kernel
def _youngest_leaves(dec: Decode, ds: Int64, q: Int64, d: int) -> int:
    at = -1
    r = ds[d, D_PARTIAL]
    for k in range(ds[d, D_N_RUNNING]):
        if r < 0 or q[dec.heap[d, k, 1], Q_JOIN] > q[r, Q_JOIN]:
            at = k
            r = dec.heap[d, k, 1]
    before = -1
    last = ds[d, D_STALLED_HEAD]
    while last >= 0 and q[last, Q_PREEMPTED_NEXT] >= 0:
        before = last
        last = q[last, Q_PREEMPTED_NEXT]
    if last >= 0 and (r < 0 or q[last, Q_JOIN] > q[r, Q_JOIN]):
        if before < 0:
            ds[d, D_STALLED_HEAD] = -1
        else:
            q[before, Q_PREEMPTED_NEXT] = -1
        ds[d, D_N_STALLED] -= 1
        computed = q[last, Q_PROMPT] + q[last, Q_MADE0] - dec.lag
        give_back(dec, ds, q, d, last, blocks_of(computed, dec.block_tokens), computed)
        return int(last)
    if at >= 0:
        return leave(dec, ds, q, d, at)
    ds[d, D_PARTIAL] = -1
    computed = q[r, Q_PROMPT] + q[r, Q_MADE0] - q[r, Q_REST_ON_D]
    give_back(dec, ds, q, d, r, blocks_of(computed, dec.block_tokens), computed)
    q[r, Q_REST_ON_D] = 0
    return int(r)


@kernel
def _wait_again(dec: Decode, ds: Int64, q: Int64, d: int, r: int) -> None:
    last = ds[d, D_PREEMPTED_HEAD]
    if dec.readmit_first_preempted == 0 or last < 0:
        q[r, Q_PREEMPTED_NEXT] = last
        ds[d, D_PREEMPTED_HEAD] = r
        return
    while q[last, Q_PREEMPTED_NEXT] >= 0:
        last = q[last, Q_PREEMPTED_NEXT]
    q[last, Q_PREEMPTED_NEXT] = r
    q[r, Q_PREEMPTED_NEXT] = -1


@kernel
def preempt(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int, r: int) -> None:
    """r, which has left, waits until it may run again."""
    counters[PREEMPTIONS] += 1
    q[r, Q_PREEMPTIONS] += 1
    dec.moments[d, 4] += 1
    q[r, Q_WAITS] = PREEMPTED
    if dec.swap_s > 0.0:
        ds[d, D_SWAPPED] += q[r, Q_PROMPT] + q[r, Q_MADE0]
    _wait_again(dec, ds, q, d, r)
    ds[d, D_N_PREEMPTED] += 1
    ds[d, D_QUEUED_BLOCKS] += blocks_of(q[r, Q_PROMPT] + q[r, Q_MADE0], dec.block_tokens)


@kernel
def make_room(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int, chunk: int) -> bool:
    """The youngest sequences leave until the next step's blocks fit; whether one was preempted."""
    preempted = False
    while running(ds, d) > 0:
        used = ds[d, D_RUNNING_BLOCKS] + ds[d, D_INFLIGHT_BLOCKS]
        if used + lacking(dec, ds, q, d, chunk) <= dec.blocks[d]:
            break
        alone = running(ds, d) == 1 and ds[d, D_RECEIVING] == 0
        r = _youngest_leaves(dec, ds, q, d)
        book_on_d(dec, ds, q, d, r, q[r, Q_MADE0], -1)
        if alone:
            q[r, Q_STATUS] = FAILED
            dec.gone[counters[GONE]] = r
            counters[GONE] += 1
            break
        preempted = True
        preempt(dec, ds, q, counters, d, r)
    return preempted


@kernel
def waiting_fits(dec: Decode, ds: Int64, q: Int64, d: int, r: int) -> bool:
    """The preempted sequence r has room for all of its context, and in stages for what it books."""
    if dec.books == STAGED and not booking_fits(dec, ds, q, d, r):
        return False
    context = q[r, Q_PROMPT] + q[r, Q_MADE0]
    need = blocks_of(context, dec.block_tokens) - leading(dec, q, d, r, (context - 1) // dec.block_tokens, 1)
    return bool(ds[d, D_RUNNING_BLOCKS] + ds[d, D_INFLIGHT_BLOCKS] + need <= dec.blocks[d])


@kernel
def no_longer_preempted(dec: Decode, ds: Int64, q: Int64, d: int, r: int) -> None:
    """r, taken from the list of those that wait, is no longer counted there: it has its place again."""
    book_on_d(dec, ds, q, d, r, q[r, Q_MADE0], 1)
    ds[d, D_N_PREEMPTED] -= 1
    ds[d, D_QUEUED_BLOCKS] -= blocks_of(q[r, Q_PROMPT] + q[r, Q_MADE0], dec.block_tokens)
    q[r, Q_WAITS] = 0


@kernel
def come_back(dec: Decode, ds: Int64, q: Int64, counters: Int64, d: int, r: int) -> float:
    """The preempted sequence r runs again at once; seconds that this adds to the next step."""
    no_longer_preempted(dec, ds, q, d, r)
    context = q[r, Q_PROMPT] + q[r, Q_MADE0]
    there = leading(dec, q, d, r, (context - 1) // dec.block_tokens, 1)
    ds[d, D_RUNNING_BLOCKS] += refer(dec, ds, q, d, r, there)
    take(dec, ds, d, D_RUNNING_BLOCKS, there, context)
    share(dec, ds, q, d, r, there * dec.block_tokens, context)
    join(dec, ds, q, counters, d, r)
    if dec.swap_s > 0.0:
        ds[d, D_SWAPPED] += context
        return 0.0
    return float(prefill_s(dec.recompute, d, np.float64(context), 0.0, 1.0))
