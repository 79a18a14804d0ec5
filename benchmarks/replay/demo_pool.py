"""The engine against the plain reference, on the head of a day of the demo's pool."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.replay.timing import seconds
from pipelines.demo.serve import emulated_traffic, serve
from pipelines.demo.workspace import prepare
from pipelines.demo.world import World, load_world
from policies.families.registry import FAMILIES
from policies.policy import default_policy
from policies.twin.reference.pool import replay_reference
from policies.twin.replay import replay
from policies.twin.workload import Workload

REPEATS = 5


def head(workload: Workload, n: int) -> Workload:
    """The first n requests, blocks numbered anew."""
    ids = workload.block_ids[: workload.block_offset[n]]
    return replace(
        workload,
        arrival_ns=workload.arrival_ns[:n],
        prompt_tokens=workload.prompt_tokens[:n],
        output_tokens=workload.output_tokens[:n],
        class_index=workload.class_index[:n],
        block_offset=workload.block_offset[: n + 1],
        block_ids=np.unique(ids, return_inverse=True)[1].astype(np.int32),
        forced_prefill=workload.forced_prefill[:n],
        forced_decode=workload.forced_decode[:n],
        scored=workload.scored[:n],
    )


def demo_rows(requests: int) -> dict[str, float]:
    """Requests/s of every family on the demo's day, and how much slower the reference is on its first `requests`."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = prepare("demo", root=Path(folder))
    pool = workspace.settings.pool(workspace.pool)
    world = load_world(workspace.world_path)
    world = World(world.file.model_copy(update={"days": 1}), world.laws, world.noise)
    served = serve(world, pool, emulated_traffic(world, pool.kv.block_tokens))
    base = default_policy(pool.classes)

    def run(family: str, workload: Workload, how: Callable[..., object]) -> Callable[[], object]:
        guess = np.full(workload.requests, world.file.output_guess_tokens, np.int32)
        policy = replace(base, family=family)
        return lambda: how(
            served.cluster, world.laws, policy, workload, seed=1, estimated_output=guess, expected_output=guess
        )

    n = served.workload.requests
    result: dict[str, float] = {"requests": n, "decode_steps": served.replay.counters.decode_steps}
    for family in FAMILIES:
        call = run(family, served.workload, replay)
        call()
        result[f"{family}_requests_per_s"] = round(n / seconds(call, REPEATS).median)
    small = head(served.workload, requests)
    slow = seconds(run("routecal", small, replay_reference), 1)
    fast = seconds(run("routecal", small, replay), REPEATS)
    return result | {"ratio_to_reference": round(slow.median / fast.median, 1)}
