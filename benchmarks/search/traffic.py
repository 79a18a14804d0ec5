"""Traffic of a pool: one part to learn from, another to be judged on, a few draws of chance of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.search.pools import Pool
from policies.evidence.sweep import SweepPlan
from policies.search.replay import ReplayFactory
from policies.twin.transforms import copies, jitter, scale_load, take
from policies.twin.workload import Workload

TRAIN_FRAC, WARM_FRAC = 0.55, 0.05
STAMP_NS = 3_000_000_000
"""Resolution of the trace's arrivals."""

TRAIN_SEEDS, TEST_SEEDS = (1, 2), (11, 12, 13)


class Traffic(Protocol):
    """Where a pool's requests come from."""

    @property
    def plan(self) -> SweepPlan:
        """Loads at which a pool is calibrated."""

    def day(self, pool: Pool, load: float, seed: int, *, train: bool) -> Workload:
        """A day of one part, one draw of chance."""

    def factory(self, pool: Pool, folder: Path, seed: int) -> ReplayFactory:
        """What replays the days of a folder, each case at its load."""


def train_days(pool: Pool, traffic: Traffic, load: float) -> dict[str, Workload]:
    """One day a seed, of the part to learn from."""
    return {f"train {seed}": traffic.day(pool, load, seed, train=True) for seed in TRAIN_SEEDS}


def test_days(pool: Pool, traffic: Traffic, load: float) -> dict[str, Workload]:
    """One day a seed, of the part to be judged on."""
    return {f"test {seed}": traffic.day(pool, load, seed, train=False) for seed in TEST_SEEDS}


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace, jittered in its stamps. Load: factor on its own rate.

    To learn from: what came before 55 % of its time, of which the first twentieth warms up. To be judged on: the whole
    trace, of which the rest is scored.
    """

    trace: Workload

    @property
    def plan(self) -> SweepPlan:
        """Loads at which a pool is calibrated."""
        return SweepPlan(start=1.8, step=0.2, low=0.3, high=6.0, halvings=2)

    def day(self, pool: Pool, load: float, seed: int, *, train: bool) -> Workload:
        """One jitter of the trace as traffic of the pool."""
        classes = pool.class_of(self.trace.prompt_tokens)
        traced = jitter(replace(self.trace, class_index=classes), STAMP_NS, seed=seed)
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

    def factory(self, pool: Pool, folder: Path, seed: int) -> ReplayFactory:
        """Whose cases are the same requests, denser."""
        return ReplayFactory(folder, pool.cluster, pool.laws, pool.goal, seed)
