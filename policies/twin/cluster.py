"""The pool as the twin models it: nodes, ports, racks, engine discipline and routers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from features.errors import TwinError
from policies.twin.faults import NO_FAULTS, Faults

CACHE_LOG = 65_536
"""Changes of prefix caches that can be on their way to the routers; one more shows the oldest at once."""


@dataclass(frozen=True, slots=True)
class Node:
    """One P or D node (a DP rank of a worker). `port_gbps` is P's egress or D's ingress, in 10⁹ bits a second.

    `classes`: names of the SLO classes whose requests it can serve, () = all.
    """

    name: str
    rack: str
    blocks: int
    port_gbps: float
    classes: tuple[str, ...] = ()

    def serves(self, slo_class: str) -> bool:
        """Whether requests of the class are compatible with it."""
        return not self.classes or slo_class in self.classes


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
    `release`: P's KV is freed when it was sent, or when D activated the request. `contention`: transfers share ports
    and uplinks, or each runs as if it were alone.
    `step_tokens`: T of a prefill step is the sum of its chunks, or their number × (the whole mean of their ends - that
    of their starts), as an engine has it that times a batch by its mean.
    `boundary_order`: D readmits, activates, reserves and then grows, or activates, reserves, grows and then lets
    sequences run. `growth_lag` 1: a token's block is taken a step after the token was made, when its KV is computed.
    `share_prompt_blocks`: prompt blocks that several sequences of a D hold count once. `recompute`: a preempted
    sequence comes back for the time of a prefill, or computes its context in D's steps, `chunk_tokens` in each; with
    `preemption = "swap"` its KV goes to host memory and comes back at `swap_gbps` (10⁹ bits a second) instead.
    `readmission`: who was preempted last, or first, runs again first. `admission_reserve_blocks`: free blocks that a
    reservation leaves. `admission = "booked"`: D also waits until those that are reserved or run, each answer as long
    as its router booked, leave room for one more; `"staged"`: an answer books `stage_tokens` at a time and is preempted
    where the next ones do not fit. `first_token`: P makes an answer's first token, or D.
    `queue_order`: P's queue in order of arrival, or by `Workload.priority` first. `decode_prefix_reuse`: prompt blocks
    that D holds already, since it shares them, are not sent again.
    """

    chunk_tokens: int = 8192
    prefill_max_seqs: int = 256
    decode_max_seqs: int = 256
    reservations_per_boundary: int = 0
    release: Literal["transfer", "activation"] = "transfer"
    step_tokens: Literal["sum", "mean"] = "sum"
    boundary_order: Literal["readmit_first", "reserve_first"] = "readmit_first"
    growth_lag: int = 0
    share_prompt_blocks: bool = False
    recompute: Literal["prefill", "steps"] = "prefill"
    preemption: Literal["recompute", "swap"] = "recompute"
    swap_gbps: float = 256.0
    readmission: Literal["last_preempted", "first_preempted"] = "last_preempted"
    admission_reserve_blocks: int = 0
    admission: Literal["blocks", "booked", "staged"] = "blocks"
    stage_tokens: int = 256
    first_token: Literal["decode", "prefill"] = "decode"  # noqa: S105  # no secret
    queue_order: Literal["fifo", "priority"] = "fifo"
    contention: Literal["share", "none"] = "share"
    decode_prefix_reuse: bool = False

    def __post_init__(self) -> None:
        # Two sequences at least: a lone one must not wait for the blocks of a landed one that waits for its place.
        for name, least in (
            ("chunk_tokens", 1),
            ("prefill_max_seqs", 1),
            ("decode_max_seqs", 2),
            ("reservations_per_boundary", 0),
            ("admission_reserve_blocks", 0),
            ("stage_tokens", 1),
        ):
            if getattr(self, name) < least:
                raise TwinError(f"`{name} >= {least}` must hold", value=getattr(self, name))
        if not self.swap_gbps > 0:
            raise TwinError("`swap_gbps > 0` must hold", value=self.swap_gbps)
        if self.growth_lag not in (0, 1):
            raise TwinError("`growth_lag` must be 0 or 1", value=self.growth_lag)
        if self.decode_prefix_reuse and not self.share_prompt_blocks:
            raise TwinError("D must share prompt blocks whose transfer it spares", value=self.share_prompt_blocks)
        # Sequences that come to run after the others grew must not need a block at once.
        if self.boundary_order == "reserve_first" and self.growth_lag == 0:
            raise TwinError("`growth_lag = 1` must hold where D reserves first", value=self.growth_lag)
        if self.recompute == "steps" and self.boundary_order == "readmit_first":
            raise TwinError("D must reserve first where it computes again in steps", value=self.boundary_order)

    @property
    def first_on_prefill(self) -> bool:
        """P makes the first token."""
        return self.first_token != "decode"  # noqa: S105  # no secret

    @property
    def in_steps(self) -> bool:
        """Preempted sequences compute their context again in D's steps."""
        return self.recompute == "steps" and self.preemption == "recompute"


@dataclass(frozen=True, slots=True)
class RouterSetup:
    """R routers, request i goes to router i mod R. `period_ns` 0 = the router sees the live state.

    Router r samples at k·period + r·period/R (whole ns) and sees a sample `delay_ns` later. A booking on D ends at
    the latest `lease_ns` after it was made. `loss_frac` of the samples never come. `correct_age`: a router brings what
    a sample shows up to now by what it expects to have happened since. Changes of the prefix caches reach all routers
    by `cache_period_ns`, `cache_delay_ns` and `cache_loss_frac`; all 0 = they see the caches as they are.
    """

    count: int = 1
    period_ns: int = 0
    delay_ns: int = 0
    lease_ns: int = 60_000_000_000
    loss_frac: float = 0.0
    correct_age: bool = False
    cache_period_ns: int = 0
    cache_delay_ns: int = 0
    cache_loss_frac: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss_frac", "cache_loss_frac"):
            if not 0 <= getattr(self, name) < 1:
                raise TwinError(f"`0 <= {name} < 1` must hold", value=getattr(self, name))
        for name in ("cache_period_ns", "cache_delay_ns"):
            if getattr(self, name) < 0:
                raise TwinError(f"`{name} >= 0` must hold", value=getattr(self, name))


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
    faults: Faults = NO_FAULTS

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


def swap_s_per_token(cluster: Cluster) -> float:
    """Seconds that the KV of a token takes to or from host memory."""
    return cluster.kv_bytes_per_token * 8 / (cluster.discipline.swap_gbps * 1e9)
