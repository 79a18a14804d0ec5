"""Decode steps in a tight loop: what a D does while it waits for nothing. Kernels.

A step is O(1): finishes are keyed by step number, block growth is counted by step modulo block size.
"""

from __future__ import annotations

import numpy as np

from policies.compiled import kernel
from policies.kernel_types import CAP, FACTOR, FIRST_BEND
from policies.law_kernel import bent, decode_residual
from policies.twin.engine.columns import (
    D_END,
    D_GENERATED,
    D_INFLIGHT_BLOCKS,
    D_LAND_HEAD,
    D_N_FRESH,
    D_N_RUNNING,
    D_PREEMPTED_HEAD,
    D_QUEUE_HEAD,
    D_RUNNING_BLOCKS,
    D_STEP_NS,
    D_STEP_SEQUENCES,
    D_STEPS,
    D_TOKENS,
    DECODE_STEPS,
    NEVER,
)
from policies.twin.engine.links import draw, duration_ns
from policies.twin.engine.parts import Decode, Float64, Int64


@kernel
def waits(ds: Int64, d: int) -> bool:
    """D's next boundary may touch more than D itself, or needs every rule: it must not be run ahead of others."""
    if ds[d, D_QUEUE_HEAD] >= 0 or ds[d, D_LAND_HEAD] >= 0:
        return True
    return bool(ds[d, D_PREEMPTED_HEAD] >= 0 or ds[d, D_N_FRESH] > 0)


@kernel
def count_step(moments: Int64, d: int, n: int, ns: np.int64) -> None:
    """Add a finished step of n sequences to D's moments."""
    moments[d, 0] += n
    moments[d, 1] += ns
    moments[d, 2] += n * n
    moments[d, 3] += n * ns


@kernel
def _cell(cells: Float64, d: int, n: int, tokens: int, seconds: float) -> None:
    cell = cells[d, min(n // 8, cells.shape[1] - 1), min(tokens // 32768, cells.shape[2] - 1)]
    cell[0] += 1.0
    cell[1] += np.float64(n)
    cell[2] += np.float64(tokens)
    cell[3] += seconds


@kernel
def start_step(dec: Decode, ds: Int64, counters: Int64, d: int, extra: float, now: int, horizon: int) -> None:
    """The next step, and while nothing else happens before `horizon`, the steps after it."""
    n = ds[d, D_N_RUNNING]
    ahead = not waits(ds, d)
    noisy = len(dec.noise) > 0
    recorded = dec.cells.shape[0] > 0
    block = dec.block_tokens
    step = ds[d, D_STEPS]
    tokens = ds[d, D_TOKENS]
    sequences = np.float64(n)
    law = dec.law.law[d]
    c0, c1, c2, c3 = law[0], law[1], law[2], law[3]
    cap, factor = law[CAP], law[FACTOR]
    bends = len(law) > FIRST_BEND
    finish = dec.heap[d, 0, 0]
    held = ds[d, D_RUNNING_BLOCKS]
    room = dec.blocks[d] - ds[d, D_INFLIGHT_BLOCKS]
    start = np.int64(now)
    done = 0
    # The trees' leaves stay the same until the tokens, which only grow, reach the next split above them.
    residual, until = 1.0, np.int64(-1)
    while True:
        if tokens >= until:
            residual, split = decode_residual(dec.law, d, sequences, np.float64(tokens))
            until = np.int64(np.ceil(split)) if split < NEVER else np.int64(NEVER)
        x = min(np.float64(tokens), cap)
        seconds = c0 + c1 * sequences + c2 * x + c3 * x * x
        if bends:
            seconds = bent(law, seconds, sequences)
        seconds = seconds * residual * factor
        if recorded:
            _cell(dec.cells, d, n, tokens, seconds)
        noise = 1.0
        if noisy:
            noise = dec.noise[draw(dec.seed, 2, d, step) >> np.uint64(52)]
        ns = duration_ns(seconds * noise + extra)
        extra = 0.0
        end = start + ns
        if not ahead or end >= horizon or finish <= step + 1:
            break
        need = dec.growth[d, (step + 1) % block]
        if held + need > room:
            break
        step += 1
        done += 1
        tokens += n
        held += need
        count_step(dec.moments, d, n, ns)
        start = end
    ds[d, D_STEPS] = step
    ds[d, D_TOKENS] = tokens
    ds[d, D_RUNNING_BLOCKS] = held
    ds[d, D_GENERATED] += done * n
    counters[DECODE_STEPS] += done
    ds[d, D_STEP_SEQUENCES] = n
    ds[d, D_STEP_NS] = ns
    ds[d, D_END] = end
