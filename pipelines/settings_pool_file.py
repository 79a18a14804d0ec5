"""The parts of routecal.toml that describe a fleet: KV geometry, engine discipline, routers, nodes and links.

Keys whose other values the twin does not model are named here all the same, so that `pipelines.settings_refused` can
refuse them by name.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

NodeName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$")]
GpuName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Rack = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of one KV element."""
INT32, DAY_MS = 2**31 - 1, 86_400_000
Gbps = Annotated[float, Field(gt=0, le=100_000)]
"""No port is faster: a larger number is in bits a second."""
Lost = Annotated[float, Field(ge=0, lt=1)]


def _with_offset(value: object) -> object:
    """TOML has times without an offset, and one at midnight would pass for a date."""
    if isinstance(value, datetime) and value.tzinfo is None:
        raise PydanticCustomError("timezone_aware", "a time must have an offset")
    return value


When = Annotated[AwareDatetime | date, BeforeValidator(_with_offset)]
"""A moment: a time with its offset, or a date, which is its midnight UTC."""


class Strict(BaseModel):
    """A key that nobody reads is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KvFile(Strict):
    """Geometry of the model's KV cache: what one token takes, and the block that engines allocate in."""

    attention: str = Field("gqa", description="gqa (MHA and MQA are its ends) or mla")
    layers: int = Field(ge=1)
    kv_heads: int | None = Field(None, ge=1, description="gqa: KV heads over the whole model")
    head_dim: int | None = Field(None, ge=1, description="gqa")
    kv_lora_rank: int | None = Field(None, ge=1, description="mla")
    rope_dim: int | None = Field(None, ge=1, description="mla")
    dtype: Literal["fp32", "fp16", "bf16", "fp8", "int8"] = "fp16"
    block_tokens: int = Field(ge=1, le=INT32, description="tokens of one KV block")
    hash_block_tokens: int | None = Field(
        None, ge=1, description="tokens of a hashed prefix block; none = block_tokens"
    )


class EngineFile(Strict):
    """Discipline and limits of the engines (docs/twin.md says what each rule does)."""

    profile: Literal["sglang", "vllm", "dynamo-replay"] | None = Field(
        None, description="the rules of a known engine, which the fields that are given here override"
    )
    chunk_tokens: int = Field(8192, ge=1, le=INT32, description="token budget of a prefill step")
    prefill_max_seqs: int = Field(256, ge=1, description="prompts in one prefill step")
    decode_max_seqs: int = Field(256, ge=2, description="sequences in one decode step")
    reservations_per_boundary: int = Field(0, ge=0, description="0 = no limit")
    release: Literal["transfer", "activation"] = Field(
        "transfer", description="P frees KV when it was sent, or when D activated the request"
    )
    step_tokens: Literal["sum", "mean"] = Field("sum", description="tokens of a step: sum, or by mean positions")
    contention: Literal["share", "none"] = Field("share", description="transfers share ports, or run as if alone")
    boundary_order: Literal["readmit_first", "reserve_first"] = "readmit_first"
    growth_lag: int = Field(0, ge=0, le=1, description="1 = a token's block is taken when its KV is computed")
    share_prompt_blocks: bool = Field(False, description="prompt blocks that sequences of a D share count once")
    recompute: Literal["prefill", "steps"] = Field("prefill", description="how a preempted sequence is computed again")
    readmission: Literal["last_preempted", "first_preempted"] = "last_preempted"
    admission_reserve_blocks: int = Field(0, ge=0, description="free blocks that a reservation on D leaves")
    admission: Literal["blocks", "booked", "staged"] = Field(
        "blocks",
        description="D takes a prompt on when its blocks are free, or when what routers booked fits, too, "
        "or by stages of its answer, of which each is admitted before it begins",
    )
    stage_tokens: int = Field(256, ge=1, le=INT32, description="answer tokens of a stage")
    order: str = Field("fifo", description="order of the prefill queue: fifo, or priority (of the class) first")
    preemption: Literal["recompute", "swap"] = Field("recompute", description="what becomes of a preempted sequence")
    swap_gbps: Gbps = Field(256.0, description="of KV to and from host memory, 10^9 bits a second")
    decode_chosen: Literal["arrival", "decode_first", "handoff", "recheck"] | None = Field(
        None, description="when the pool's router chooses D; none = as the family at hand does it"
    )
    first_token: Literal["decode", "prefill"] = Field("decode", description="who makes an answer's first token")
    tiers: tuple[str, ...] = Field(("hbm",), description="where KV is cached: hbm")
    transfer_overlap: bool = Field(
        False, description="KV is sent layer by layer while prefill runs; the transfer law says how much of it"
    )
    decode_prefix_reuse: bool = Field(False, description="prompt blocks that D shares and holds already are not sent")
    lora: bool = False
    speculative_decoding: bool = False


class RouterFile(Strict):
    """The routers: how many, how old their view is, and which algorithms they can run."""

    count: int = Field(1, ge=1)
    period_ms: float = Field(0.0, ge=0, le=DAY_MS, description="between two samples of a node; 0 = the live state")
    delay_ms: float = Field(0.0, ge=0, le=DAY_MS, description="from a sample to its use")
    lease_ms: float = Field(60_000.0, gt=0, le=DAY_MS, description="a booking on D ends at the latest then")
    loss_frac: Lost = Field(0.0, description="samples that never come")
    correct_age: bool = Field(False, description="a sample is brought up to now by what is expected since")
    cache_period_ms: float = Field(
        0.0, ge=0, le=DAY_MS, description="between two reports of what prefix caches hold; 0 = every change at once"
    )
    cache_delay_ms: float = Field(0.0, ge=0, le=DAY_MS, description="from such a report to its use")
    cache_loss_frac: Lost = Field(0.0, description="changes of prefix caches that no router learns of")
    families: tuple[str, ...] | None = Field(None, min_length=1, description="algorithms that it can run; none = all")


class NodesFile(Strict):
    """Nodes with the same facts; a node is one DP rank of one worker."""

    names: tuple[NodeName, ...] = Field(min_length=1)
    role: Literal["prefill", "decode", "colocated"]
    rack: Rack = "rack0"
    blocks: int | None = Field(None, ge=1, le=INT32, description="usable KV blocks; none = learned from telemetry")
    port_gbps: Gbps = Field(description="P's egress or D's ingress, 10^9 bits a second")
    classes: tuple[str, ...] = Field((), description="SLO classes that it serves; none = all")
    gpu: GpuName | None = Field(
        None,
        description="e.g. h100: nodes of one GPU and tensor parallel share their laws of step times; none = unknown",
    )
    tensor_parallel: int | None = Field(
        None, strict=True, ge=1, le=1024, description="GPUs of the node; none = the pool's, else 1"
    )
    valid_from: When | None = None
    valid_to: When | None = Field(None, description="exclusive")


class UplinkFile(Strict):
    """One direction between two racks, shared by all transfers that cross it."""

    from_rack: Rack
    to_rack: Rack
    gbps: Gbps = Field(description="10^9 bits a second")
    valid_from: When | None = None
    valid_to: When | None = Field(None, description="exclusive")
