"""The pool as the twin models it: nodes, ports, racks, engine discipline and routers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from features.errors import TwinError


@dataclass(frozen=True, slots=True)
class Node:
    """One P or D node (a DP rank of a worker). `port_gbps` is P's egress or D's ingress, in 10⁹ bits a second."""

    name: str
    rack: str
    blocks: int
    port_gbps: float


@dataclass(frozen=True, slots=True)
class Uplink:
    """One direction between two racks, shared by all transfers that cross it."""

    from_rack: str
    to_rack: str
    gbps: float


@dataclass(frozen=True, slots=True)
class Discipline:
    """How the engines schedule. Each field is a rule of docs/twin.md.

    `reservations_per_boundary` 0 = no limit, k = at most k + the activations of that boundary.
    `release`: P's KV is freed when it was sent, or when D activated the request.
    """

    chunk_tokens: int = 8192
    prefill_max_seqs: int = 256
    decode_max_seqs: int = 256
    reservations_per_boundary: int = 0
    release: Literal["transfer", "activation"] = "transfer"

    def __post_init__(self) -> None:
        # Two sequences at least: a lone one must not wait for the blocks of a landed one that waits for its place.
        for name, least in (
            ("chunk_tokens", 1),
            ("prefill_max_seqs", 1),
            ("decode_max_seqs", 2),
            ("reservations_per_boundary", 0),
        ):
            if getattr(self, name) < least:
                raise TwinError(f"`{name} >= {least}` must hold", value=getattr(self, name))


@dataclass(frozen=True, slots=True)
class RouterSetup:
    """R routers, request i goes to router i mod R. `period_ns` 0 = the router sees the live state.

    Router r samples at k·period + r·period/R (whole ns) and sees a sample `delay_ns` later. A booking on D ends at
    the latest `lease_ns` after its decision.
    """

    count: int = 1
    period_ns: int = 0
    delay_ns: int = 0
    lease_ns: int = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Cluster:
    """A pool. Every rack pair without an uplink is joined without a limit of its own (the ports still bind)."""

    prefill: tuple[Node, ...]
    decode: tuple[Node, ...]
    uplinks: tuple[Uplink, ...]
    block_tokens: int
    kv_bytes_per_token: int
    discipline: Discipline = Discipline()
    routers: RouterSetup = RouterSetup()

    def __post_init__(self) -> None:
        if not self.prefill or not self.decode:
            counts = (len(self.prefill), len(self.decode))
            raise TwinError("a pool must have at least one P node and one D node", value=counts)
        names = [n.name for n in (*self.prefill, *self.decode)]
        if len(set(names)) != len(names):
            raise TwinError("node names must be unique", value=sorted(n for n in names if names.count(n) > 1)[0])

    @property
    def racks(self) -> tuple[str, ...]:
        """Rack names, sorted; a rack's index is its place here."""
        return tuple(sorted({n.rack for n in (*self.prefill, *self.decode)}))
