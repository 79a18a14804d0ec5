"""What a router knows at the moment of a decision: the input of every family, in plain values.

One `RouterView` holds one request and every node as the router's last samples and its own bookings show them. Unknown
is None, never 0. Kernels take the same values as arrays (`PREFILL_COLUMNS`, `DECODE_COLUMNS`, NaN for unknown).
"""

from __future__ import annotations

from dataclasses import dataclass

PREFILL_COLUMNS = (
    "backlog_tokens",  # new tokens not yet computed: sampled (waiting + running) + own bookings that no sample shows
    "backlog_requests",  # prompts that they belong to
    "available_blocks",  # free + reclaimable
    "sending_requests",  # transfers under way
    "age_s",  # now - time of the sample
    "waiting_requests",  # sampled: prompts in the queue
    "running_requests",  # sampled: prompts of which a part is computed
    "total_blocks",
    "own_tokens",  # new tokens of own prompts that P has not computed yet, from the hand-over on, whatever samples show
    "own_prompts",  # those prompts
    "own_requests",  # own requests that were given to P and have not ended
)
DECODE_COLUMNS = (
    "usable_blocks",
    "active_blocks",
    "reserved_blocks",
    "inflight_blocks",
    "reclaimable_blocks",
    "booked_blocks",  # own bookings that no sample shows yet
    "queued_blocks",  # needs of prompts queued on D for a reservation
    "running_requests",
    "running_tokens",  # context tokens of the running sequences
    "receiving_requests",  # reserved, KV under way or landed, not yet running
    "receiving_tokens",
    "booked_requests",
    "booked_tokens",  # prompt tokens of own bookings that no sample shows yet
    "growth_blocks_per_s",
    "release_blocks_per_s",
    "age_s",
    "waiting_requests",  # sampled: queued for a reservation or preempted
    "own_requests",  # own requests that were given to D and have not ended
    "own_blocks",  # full blocks of their prompts, each once where the router takes blocks of one hash for one
    "new_blocks",  # full blocks of this prompt that are not among them, as the router counts
)


@dataclass(frozen=True, slots=True)
class PrefillView:
    """One P node. Blocks are of the pool's block size; None is unknown. `port_bytes_per_s`: nominal
    speed of its egress port.
    """

    name: str
    rack: int
    accepting: bool
    compatible: bool
    total_blocks: int
    port_bytes_per_s: float
    hit_tokens: int  # cached prefix of this prompt, whole blocks, at most n - 1 tokens
    backlog_tokens: float | None
    backlog_requests: float | None
    available_blocks: float | None
    sending_requests: float | None
    age_s: float | None
    waiting_requests: float | None = None
    running_requests: float | None = None
    own_tokens: float = 0.0
    own_prompts: float = 0.0
    own_requests: float = 0.0


@dataclass(frozen=True, slots=True)
class DecodeView:
    """One D node. Units as in `DECODE_COLUMNS`; `port_bytes_per_s`: nominal speed of its ingress port."""

    name: str
    rack: int
    accepting: bool
    compatible: bool
    port_bytes_per_s: float
    resident_tokens: int  # of this prompt's KV, already on D
    usable_blocks: float
    active_blocks: float | None
    reserved_blocks: float | None
    inflight_blocks: float | None
    reclaimable_blocks: float | None
    booked_blocks: float
    queued_blocks: float | None
    running_requests: float | None
    running_tokens: float | None
    receiving_requests: float | None
    receiving_tokens: float | None
    booked_requests: float
    booked_tokens: float
    growth_blocks_per_s: float | None
    release_blocks_per_s: float | None
    age_s: float | None
    waiting_requests: float | None = None
    own_requests: float = 0.0
    own_blocks: float | None = None
    new_blocks: float | None = None
    running_by_class: tuple[float, ...] | None = None  # running sequences of every SLO class


@dataclass(frozen=True, slots=True)
class UplinkView:
    """One direction between two racks. `name`: as the laws' ports name it (`up:<rack>><rack>`). `flows`: own transfers
    over it that are under way, as the router knows them.
    """

    name: str
    from_rack: int
    to_rack: int
    bytes_per_s: float
    flows: float


@dataclass(frozen=True, slots=True)
class RequestView:
    """The request to place. `waited_s` = now - arrival; `tie_seed` decides among equals.

    `prefilled_on`: index of the P that has computed the prompt, None = no P has: a D is chosen for it then.
    """

    prompt_tokens: int
    estimated_output_tokens: int  # at the class's booking quantile
    expected_output_tokens: int  # at the median
    class_index: int
    waited_s: float
    tie_seed: int
    prefilled_on: int | None = None


@dataclass(frozen=True, slots=True)
class RouterView:
    """One decision's whole input. `turn` counts this router's earlier decisions of this kind: at an arrival, or of a D
    for a computed prompt. `last_pair`: what the policy's hysteresis keeps to, None = nothing.
    """

    request: RequestView
    prefill: tuple[PrefillView, ...]
    decode: tuple[DecodeView, ...]
    uplinks: tuple[UplinkView, ...]
    block_tokens: int
    kv_bytes_per_token: int
    chunk_tokens: int
    turn: int
    last_pair: tuple[int, int] | None = None
