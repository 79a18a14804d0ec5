"""Serves an emulated pool's traffic, day after day, with the caches living on between the windows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

import numpy as np
import numpy.typing as npt

from pipelines.demo.world import World
from pipelines.night.workloads import priorities
from pipelines.settings import Pool
from pipelines.settings_cluster import to_cluster
from policies.twin.cluster import Cluster
from policies.twin.outcomes import Replay
from policies.twin.replay import Recorded, Recording, replay_recorded
from policies.twin.traffic import DayTraffic, day_traffic
from policies.twin.workload import Workload

DAY_S = 86_400
DRAIN_S = 120
"""Polls go on this long after a window, while the last answers are made."""


@dataclass(frozen=True, slots=True)
class Served:
    """All days in one replay. `day` and `row`: each request's day and its row in that day's traffic."""

    cluster: Cluster
    world: World
    days: tuple[date, ...]
    traffic: tuple[DayTraffic, ...]
    day: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    workload: Workload
    replay: Replay
    recorded: Recorded
    poll_ns: npt.NDArray[np.int64]
    decisions: npt.NDArray[np.int64]  # requests whose candidates were recorded

    @property
    def start_us(self) -> int:
        """Unix microseconds of the replay's time 0: midnight UTC of the first day."""
        first = self.days[0]
        return int(datetime(first.year, first.month, first.day, tzinfo=UTC).timestamp()) * 1_000_000


def emulated_traffic(world: World, block_tokens: int) -> tuple[DayTraffic, ...]:
    """The traffic of every day of the world."""
    spec = world.traffic(block_tokens)
    return tuple(day_traffic(spec, day=k, seed=world.file.seed) for k in range(world.file.days))


def serve(world: World, pool: Pool, traffic: tuple[DayTraffic, ...]) -> Served:
    """Replay all days under the pool's incumbent with the world's laws and noise."""
    file = world.file
    first_us = (
        int(datetime(file.first_day.year, file.first_day.month, file.first_day.day, tzinfo=UTC).timestamp()) * 10**6
    )
    cluster = to_cluster(pool, at_us=first_us)
    days = tuple(file.first_day + timedelta(days=k) for k in range(len(traffic)))
    workload, day, row = _workload(world, pool, traffic)
    polls = np.concatenate(
        [
            np.arange(
                k * DAY_S + file.window_start_s - 2,
                k * DAY_S + file.window_start_s + file.window_s + DRAIN_S,
                file.poll_s,
            )
            for k in range(len(traffic))
        ]
    ) * np.int64(10**9)
    chance = np.random.default_rng([file.seed, 77]).random(workload.requests)
    decisions = np.flatnonzero(chance < file.decision_sample)
    guess = np.full(workload.requests, file.output_guess_tokens, np.int32)
    result, recorded = replay_recorded(
        cluster,
        world.laws,
        pool.incumbent,
        workload,
        seed=file.seed,
        estimated_output=guess,
        expected_output=guess,
        noise=world.noise,
        recording=Recording(polls, decisions, cells=True),
    )
    return Served(cluster, world, days, traffic, day, row, workload, result, recorded, polls, decisions)


def classes_of(pool: Pool, prompt_tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Index of each prompt's class by the pool's rules on prompt length."""
    names = [c.name for c in pool.classes]
    found = np.full(len(prompt_tokens), -1, np.int32)
    for rule in pool.class_rules:
        low = rule.min_prompt_tokens or 0
        high = rule.max_prompt_tokens or np.iinfo(np.int64).max
        found[(found < 0) & (prompt_tokens >= low) & (prompt_tokens < high)] = names.index(rule.name)
    return np.maximum(found, 0)


def _workload(
    world: World, pool: Pool, traffic: tuple[DayTraffic, ...]
) -> tuple[Workload, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    file = world.file
    arrival = np.concatenate(
        [
            (t.arrival_s * 1e9).astype(np.int64) + (k * DAY_S + file.window_start_s) * 10**9
            for k, t in enumerate(traffic)
        ]
    )
    # A log knows microseconds; what happens between two of them must not be decided by what it cannot tell.
    arrival = arrival // 1000 * 1000
    prompt = np.concatenate([t.prompt_tokens for t in traffic])
    hashes = np.concatenate([t.hashes for t in traffic])
    _, ids = np.unique(hashes, return_inverse=True)
    blocks = np.concatenate([np.diff(t.hash_offset) for t in traffic])
    n = len(arrival)
    free = np.full(n, -1, np.int32)
    class_index = classes_of(pool, prompt)
    workload = Workload(
        arrival_ns=arrival,
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=np.concatenate([t.output_tokens for t in traffic]).astype(np.int32),
        class_index=class_index,
        block_offset=np.concatenate([[0], np.cumsum(blocks)]).astype(np.int64),
        block_ids=ids.astype(np.int32),
        forced_prefill=free,
        forced_decode=free,
        scored=np.ones(n, np.bool_),
        priority=priorities(pool, class_index),
    )
    day = np.repeat(np.arange(len(traffic)), [len(t.arrival_s) for t in traffic])
    row = np.concatenate([np.arange(len(t.arrival_s)) for t in traffic])
    return workload, day, row


def with_rate(world: World, factor: float) -> World:
    """The same world with its arrival rate times `factor`."""
    spec = world.file.traffic
    if spec is None:
        return World(world.file.model_copy(update={"speed_up": world.file.speed_up * factor}), world.laws, world.noise)
    faster = spec.model_copy(update={"rate_per_s": spec.rate_per_s * factor})
    return replace(world, file=world.file.model_copy(update={"traffic": faster}))
