"""Traffic of a pool: the trace's first 55 % to learn from, its last 45 % to be judged on, jittered in its stamps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.search.pools import Pool
from policies.twin.transforms import copies, jitter, scale_load, take
from policies.twin.workload import Workload

TRAIN_FRAC, WARM_FRAC = 0.55, 0.05
STAMP_NS = 3_000_000_000
"""Resolution of the trace's arrivals."""

TRAIN_SEEDS, TEST_SEEDS = (1, 2), (11, 12, 13)


def train_days(pool: Pool, trace: Workload, load: float) -> dict[str, Workload]:
    """One day a jitter, what came before 55 % of the trace's time; its first twentieth warms up."""
    return {f"train {seed}": day_of(pool, trace, load, seed, train=True) for seed in TRAIN_SEEDS}


def test_days(pool: Pool, trace: Workload, load: float) -> dict[str, Workload]:
    """One day a jitter, the whole trace, of which the rest after 55 % is scored."""
    return {f"test {seed}": day_of(pool, trace, load, seed, train=False) for seed in TEST_SEEDS}


def day_of(pool: Pool, trace: Workload, load: float, seed: int, *, train: bool) -> Workload:
    """One jitter of the trace as traffic of the pool; `load`: factor on the trace's own rate."""
    traced = jitter(replace(trace, class_index=pool.class_of(trace.prompt_tokens)), STAMP_NS, seed=seed)
    span = int(traced.arrival_ns[-1])
    cut = round(TRAIN_FRAC * span)
    if train:
        traced = take(traced, np.flatnonzero(traced.arrival_ns < cut))
        traced = replace(traced, scored=traced.arrival_ns >= round(WARM_FRAC * span))
    else:
        traced = replace(traced, scored=traced.arrival_ns >= cut)
    # Copies stand a moment apart, so that no two prompts of one kind come at one instant.
    many = copies(traced, pool.copies, every_ns=STAMP_NS // 2) if pool.copies > 1 else traced
    return scale_load(many, load)
