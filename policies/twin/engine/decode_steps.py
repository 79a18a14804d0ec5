"""Decode steps in a tight loop: what a D does while it waits for nothing. Kernels.

A step is O(1): finishes are keyed by step number, block growth is counted by step modulo block size.
"""

from __future__ import annotations

import numpy as np

from policies.compiled import inlined, kernel
from policies.kernel_types import CAP, FACTOR, FIRST_BEND
from policies.law_kernel import bent, decode_residual
from policies.twin.engine.columns import (
    D_END,
    D_GENERATED,
    D_INFLIGHT_BLOCKS,
    D_LAND_HEAD,
    D_LAST_END,
    D_N_FRESH,
    D_N_RUNNING,
    D_PARTIAL,
    D_PREEMPTED_HEAD,
    D_QUEUE_HEAD,
    D_RUNNING_BLOCKS,
    D_SKIP,
    D_STALLED_HEAD,
    D_STEP_NS,
    D_STEP_SEQUENCES,
    D_STEPS,
    D_TOKENS,
    DECODE_STEPS,
    NEVER,
)
from policies.twin.engine.links import draw
from policies.twin.engine.parts import Decode, Float64, Int64


@kernel
def reaches_out(ds: Int64, d: int) -> bool:
    """D's next boundary touches more than D: it activates or reserves."""
    return bool(ds[d, D_QUEUE_HEAD] & ds[d, D_LAND_HEAD] != -1)  # both are -1 where there is none


@kernel
def waits(ds: Int64, d: int) -> bool:
    """D's next boundary changes more than tokens."""
    heads = ds[d, D_QUEUE_HEAD] & ds[d, D_LAND_HEAD] & ds[d, D_PREEMPTED_HEAD] & ds[d, D_PARTIAL]
    return bool(heads & ds[d, D_STALLED_HEAD] != -1 or ds[d, D_N_FRESH] > 0)


@kernel
def count_steps(moments: Int64, d: int, n: int, steps: int, ns: np.int64) -> None:
    """Add finished steps of n sequences each, ns in all, to D's moments."""
    moments[d, 0] += n * steps
    moments[d, 1] += ns
    moments[d, 2] += n * n * steps
    moments[d, 3] += n * ns


@kernel
def itl_bin(ns: np.int64) -> np.int64:
    """`policies.twin.itl.bin_of`."""
    x, shift = np.int64(ns), np.int64(0)
    while x >= 256:
        x >>= 1
        shift += 1
    return np.int64(128 * shift + x)


@kernel
def count_gaps(itl: Int64, running_by_class: Int64, d: int, at: np.int64, steps: int) -> None:
    """In so many steps of this bin everyone who runs on D made a token."""
    for c in range(itl.shape[0]):
        itl[c, at] += steps * running_by_class[d, c]


@kernel
def _cell(cells: Float64, d: int, n: int, tokens: int, seconds: float) -> None:
    cell = cells[d, min(n // 8, cells.shape[1] - 1), min(tokens // 32768, cells.shape[2] - 1)]
    cell[0] += 1.0
    cell[1] += np.float64(n)
    cell[2] += np.float64(tokens)
    cell[3] += seconds


@inlined
def _seconds(law: Float64, begin: float, residual: float, sequences: float, tokens: int) -> float:
    """`models.portable.steps` with the product of the trees; `begin` of `_of_sequences`."""
    x = min(np.float64(tokens), law[CAP])
    seconds = begin + law[2] * x + law[3] * x * x
    if len(law) > FIRST_BEND:
        seconds = bent(law, seconds, sequences)
    return float(seconds * residual * law[FACTOR])


@inlined
def _of_sequences(law: Float64, sequences: float) -> float:
    return float(law[0] + law[1] * sequences)


@inlined
def _noise(table: Float64, seed: np.uint64, d: int, step: int) -> float:
    return table[draw(seed, 2, d, step) >> np.uint64(52)] if len(table) > 0 else 1.0


@inlined
def start_step(dec: Decode, ds: Int64, d: int, extra: float, now: int) -> None:
    """The next step."""
    n, tokens = ds[d, D_N_RUNNING], ds[d, D_TOKENS]
    residual, _ = decode_residual(dec.law, d, np.float64(n), np.float64(tokens))
    law, sequences = dec.law.law[d], np.float64(n)
    seconds = _seconds(law, _of_sequences(law, sequences), residual, sequences, tokens)
    if dec.cells.shape[0] > 0:
        _cell(dec.cells, d, n, tokens, seconds)
    noise = _noise(dec.noise, dec.seed, d, ds[d, D_STEPS])
    ns = max(np.int64((seconds * noise + extra) * 1e9 + 0.5), np.int64(1))
    ds[d, D_STEP_SEQUENCES] = n
    ds[d, D_STEP_NS] = ns
    ds[d, D_END] = now + ns


@inlined
def run_steps(dec: Decode, ds: Int64, counters: Int64, d: int, horizon: int) -> None:
    """End the step under way and those after it as long as they end before `horizon` and nothing but tokens changes.

    D waits for nothing. What finishes a sequence, or does not find its blocks, is left to the next boundary.
    """
    n = ds[d, D_STEP_SEQUENCES]
    if n == 0 or n != ds[d, D_N_RUNNING] or ds[d, D_SKIP] != 0:
        return
    step, tokens = ds[d, D_STEPS], ds[d, D_TOKENS]
    end, ns = ds[d, D_END], ds[d, D_STEP_NS]
    start = end - ns
    began = start
    finish = dec.heap[d, 0, 0]
    held = ds[d, D_RUNNING_BLOCKS]
    room = dec.blocks[d] - ds[d, D_INFLIGHT_BLOCKS]
    growth = dec.growth[d]
    slot = step % dec.block_tokens
    sequences, law = np.float64(n), dec.law.law[d]
    begin = _of_sequences(law, sequences)
    recorded = dec.cells.shape[0] > 0
    done = 0
    # Neighbouring steps are mostly in one bin: [low, high) ns, `alike` of them not counted yet.
    low, high, step_bin = np.int64(0), np.int64(0), np.int64(0)
    alike = 0
    # The trees' leaves stay the same until the tokens, which only grow, reach the next split above them.
    residual, until = 1.0, np.int64(-1)
    while end < horizon and finish > step + 1:
        slot += 1
        if slot == dec.block_tokens:
            slot = 0
        if held + growth[slot] > room:
            break
        held += growth[slot]
        step += 1
        done += 1
        tokens += n
        start = end
        if ns < low or ns >= high:
            if alike > 0:
                count_gaps(dec.itl, dec.running_by_class, d, step_bin, alike)
            alike = 0
            step_bin = itl_bin(ns)
            shift = max(step_bin // 128 - 1, np.int64(0))
            low = (step_bin - 128 * shift) << shift
            high = low + (np.int64(1) << shift)
        alike += 1
        if tokens >= until:
            residual, split = decode_residual(dec.law, d, sequences, np.float64(tokens))
            until = np.int64(np.ceil(split)) if split < NEVER else np.int64(NEVER)
        seconds = _seconds(law, begin, residual, sequences, tokens)
        if recorded:
            _cell(dec.cells, d, n, tokens, seconds)
        ns = max(np.int64(seconds * _noise(dec.noise, dec.seed, d, step) * 1e9 + 0.5), np.int64(1))
        end = start + ns
    if done == 0:
        return
    count_gaps(dec.itl, dec.running_by_class, d, step_bin, alike)
    count_steps(dec.moments, d, n, done, start - began)
    ds[d, D_STEPS] = step
    ds[d, D_TOKENS] = tokens
    ds[d, D_RUNNING_BLOCKS] = held
    ds[d, D_GENERATED] += done * n
    ds[d, D_LAST_END] = start
    counters[DECODE_STEPS] += done
    ds[d, D_STEP_NS] = ns
    ds[d, D_END] = end
