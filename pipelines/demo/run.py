"""The first half of `routecal demo`: an emulated pool serves its days and writes the logs of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.demo.logs import write_logs
from pipelines.demo.serve import Served, emulated_traffic, serve
from pipelines.demo.trace import trace_traffic
from pipelines.demo.workspace import Workspace, prepare
from pipelines.demo.world import load_world
from policies.objective import latency, met

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Emulated:
    """What the pool did: `goodput_frac` of its incumbent, `shared_frac` of the transfers that shared a port."""

    workspace: Workspace
    served: Served
    logs: tuple[Path, ...]
    goodput_frac: float
    shared_frac: float


def emulate(
    kind: str,
    *,
    trace: Path | None = None,
    slices: int | None = None,
    root: Path | None = None,
    tell: Tell = lambda _: None,
) -> Emulated:
    """Serve all days of the world and write the logs of the workspace. The same arguments give the same bytes."""
    workspace = prepare(kind, trace=trace, root=root)
    world = load_world(workspace.world_path)
    pool = workspace.settings.pool(workspace.pool)
    if trace is None:
        traffic = emulated_traffic(world, pool.kv.block_tokens)
    else:
        traffic = trace_traffic(trace, slices=slices or world.file.days, speed_up=world.file.speed_up)
    tell(
        f"serving {sum(len(t.arrival_s) for t in traffic):,} requests on {len(traffic)} days "
        f"under {pool.incumbent.family}"
    )
    served = serve(world, pool, traffic)
    tell("writing request log, decision log and recorded polls")
    logs = write_logs(served, pool, workspace.logs)
    good = met(served.workload, latency(served.workload, served.replay), pool.goal)
    return Emulated(workspace, served, logs, float(np.mean(good)), shared_transfers(served))


def shared_transfers(served: Served) -> float:
    """Share of the transfers that had another one on one of their ports or their uplink at the same time."""
    r, cluster = served.replay, served.cluster
    done = r.transfer_drained_ns >= 0
    start, end = r.transfer_started_ns[done], r.transfer_drained_ns[done]
    p, d = r.prefill_node[done], r.decode_node[done]
    racks = {name: k for k, name in enumerate(cluster.racks)}
    rack_p = np.array([racks[n.rack] for n in cluster.prefill])[p]
    rack_d = np.array([racks[n.rack] for n in cluster.decode])[d]
    shared = np.zeros(len(start), np.bool_)
    for resource in (p, d + 10_000, np.where(rack_p == rack_d, -1, rack_p * 100 + rack_d + 20_000)):
        order = np.lexsort((start, resource))
        keys, begins, ends = resource[order], start[order], end[order]
        # Along one resource by start: a flow overlaps an earlier one if that one ends after it starts.
        overlap = np.zeros(len(order), np.bool_)
        for key in np.unique(keys[keys >= 0]):
            at = np.flatnonzero(keys == key)
            latest = np.maximum.accumulate(ends[at])
            overlap[at[1:]] |= latest[:-1] > begins[at[1:]]
            earliest = np.minimum.accumulate(begins[at][::-1])[::-1]
            overlap[at[:-1]] |= earliest[1:] < ends[at[:-1]]
        shared[order] |= overlap
    return float(shared.mean())
