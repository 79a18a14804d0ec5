"""A pool of the settings as the twin's cluster."""

from __future__ import annotations

from collections.abc import Mapping

from features.errors import SettingsError
from pipelines.settings import Pool, PoolNode, PoolUplink
from policies.twin.cluster import Cluster, Node, Uplink


def to_cluster(pool: Pool, *, at_us: int | None = None, blocks: Mapping[str, int] | None = None) -> Cluster:
    """The pool as it is at a moment (None: as it is described last, without an end).

    `blocks`: usable blocks by node as telemetry shows them, for nodes whose settings leave them out. Nodes keep the
    order of the settings. Raises SettingsError for a node of unknown size, or if nothing is valid at the moment.
    """
    learned = blocks or {}

    def valid(entry: PoolNode | PoolUplink) -> bool:
        return entry.valid.to_us is None if at_us is None else entry.valid.holds(at_us)

    def node(entry: PoolNode) -> Node:
        size = entry.blocks if entry.blocks is not None else learned.get(entry.name)
        if size is None:
            raise SettingsError(
                "a node's usable blocks must be known",
                place=f"pools.{pool.name}.nodes, {entry.name}",
                hint="set `blocks`, or ingest telemetry that tells them",
            )
        return Node(entry.name, entry.rack, size, entry.port_gbps, entry.classes)

    nodes = [entry for entry in pool.nodes if valid(entry)]
    for role in ("prefill", "decode"):
        if not any(entry.role == role for entry in nodes):
            raise SettingsError(
                "a pool must have P and D nodes at every moment that is replayed",
                value=at_us,
                place=f"pools.{pool.name}.nodes",
                hint=f"none with role {role!r} is valid then",
            )
    return Cluster(
        prefill=tuple(node(entry) for entry in nodes if entry.role == "prefill"),
        decode=tuple(node(entry) for entry in nodes if entry.role == "decode"),
        uplinks=tuple(Uplink(u.from_rack, u.to_rack, u.gbps) for u in pool.uplinks if valid(u)),
        block_tokens=pool.kv.block_tokens,
        kv_bytes_per_token=pool.kv.bytes_per_token,
        discipline=pool.discipline,
        routers=pool.router,
    )
