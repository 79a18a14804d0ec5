"""The policy file as pydantic models: what `data/schemas/policy.json` is made from.

A file is one JSON object; its estimators are the portable dataclasses themselves. `content_hash`, `decision_hash` and
`envelope` lie outside the hashes, all else inside.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, model_validator

from models.portable.estimators import Estimators
from policies.risk import GRID_POINTS
from policies.vector_models import Strict, VectorModel

SCHEMA_VERSION = "2.1"
"""2.1 has two more weights, the moment of D, draws and a band; a file of 2.0 is one without them."""

Hash = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
Moment = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$", description="UTC")]
Probability = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]
Draws = Annotated[int, Field(ge=0, le=65_536, description="nodes that are drawn, 0 = all")]
Positive = Annotated[float, Field(gt=0)]
Table = Annotated[tuple[Probability, ...], Field(min_length=GRID_POINTS, max_length=GRID_POINTS)]


class Compatibility(Strict):
    """What a router must find in its pool before it may use the file."""

    model: str
    engine: str
    block_tokens: Annotated[int, Field(gt=0, le=2**31)]
    kv_bytes_per_token: Annotated[int, Field(gt=0, le=2**53 - 1)]
    chunk_tokens: Annotated[int, Field(gt=0, le=2**31)]


class WeightsModel(Strict):
    """Weights of the score; PrefixBenefit is subtracted. Pressure, risk and harm in seconds, the others are factors."""

    PrefillWait: NotNegative
    PrefillCompute: NotNegative
    TransferTime: NotNegative
    DecodeWait: NotNegative
    ProjectedKVPressure: NotNegative
    SloRisk: NotNegative
    PrefixBenefit: NotNegative
    NeighbourHarm: NotNegative = 0.0
    Crowd: NotNegative = 0.0


class ClassModel(Strict):
    """One SLO class; its place in the list is its `class_index`. A target of null is none."""

    name: Annotated[str, Field(min_length=1)]
    objective: Literal["slo_goodput", "deadline", "token_throughput"]
    ttft_target_s: Positive | None
    tpot_target_s: Positive | None
    weights: WeightsModel
    quantile: Annotated[float, Field(gt=0, lt=1)]
    reserve_blocks: NotNegative


class RouterModel(Strict):
    """Numbers of the router that no class owns. `lease_s`: how long a booking on D may stand."""

    high_water: Annotated[float, Field(gt=0, lt=1)]
    horizon_s: NotNegative
    wait_cap_s: NotNegative
    release_floor_blocks_per_s: Positive
    unknown: Literal["worst", "exclude"]
    when_full: Literal["queue", "reject"]
    same_rack: Literal["none", "prefill_first", "decode_first"]
    temperature_p_s: NotNegative
    temperature_d_s: NotNegative
    lease_s: Positive
    decode_moment: Literal["arrival", "decode_first", "handoff", "recheck"] = "arrival"
    draws_p: Draws = 0
    draws_d: Draws = 0
    hysteresis_s: NotNegative = 0.0
    dwell_s: NotNegative = 0.0
    half_life_s: NotNegative = 0.0


class RiskTables(Strict):
    """P(met) at target / predicted = 0, 1/64 … 4, linear between, the last value beyond."""

    ttft: Table
    tpot: Table


class Validity(Strict):
    """A router must not use the file outside this window."""

    valid_from: Moment
    valid_until: Moment


class Reference(Strict):
    """Another policy; `content_hash` null = declared in the settings, no file yet."""

    family: str
    policy_version: str | None
    content_hash: Hash | None


class Inputs(Strict):
    """What the file was made from."""

    digests: dict[str, Hash]
    code_revision: str
    capability_level: str


class Evidence(Strict):
    """What was shown, and how far the file may go by itself. `details`: gates, intervals, tables."""

    verdict: Literal["better", "not distinguishable", "worse", "not trustworthy"]
    promotion_cap: Literal["none", "shadow", "current"]
    reason: str
    details: dict[str, JsonValue]


class Signature(Strict):
    """One Ed25519 signature; `sig` in base64."""

    keyid: str
    sig: str


class Envelope(Strict):
    """A DSSE envelope. Its payload is the statement of `policies.signing` in base64."""

    payloadType: str  # noqa: N815  # DSSE's name
    payload: str
    signatures: tuple[Signature, ...]


class PolicyFile(Strict):
    """One routing policy of one pool, as it is published."""

    schema_version: Literal["2.0", "2.1"]
    policy_version: Annotated[str, Field(pattern=r"^[^/\s]+/\d{4}-\d{2}-\d{2}$", description="<pool>/<day>")]
    pool: Annotated[str, Field(pattern=r"^[^/\s]+$")]
    compatibility: Compatibility
    family: str
    family_params: Annotated[
        dict[str, float | bool | str] | None, Field(description="the family's own parameters; left out = its defaults")
    ] = None
    classes: Annotated[tuple[ClassModel, ...], Field(min_length=1)]
    router: RouterModel
    risk_tables: RiskTables
    estimators: Estimators
    validity: Validity
    fallback: Reference | None
    incumbent: Reference | None
    inputs: Inputs
    evidence: Evidence | None
    vectors: tuple[VectorModel, ...]
    content_hash: Hash | None = None
    decision_hash: Hash | None = None
    envelope: Envelope | None = None

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> PolicyFile:
        if self.policy_version.split("/")[0] != self.pool:
            raise ValueError("policy_version must start with the pool's name")
        if not self.validity.valid_from < self.validity.valid_until:
            raise ValueError("valid_from must come before valid_until")
        return self

    @property
    def day(self) -> str:
        """The partition day, YYYY-MM-DD."""
        return self.policy_version.split("/")[1]


UNHASHED = ("content_hash", "decision_hash", "envelope")
"""Keys outside both hashes."""

EVIDENCE_KEYS = ("evidence", "vectors")
"""Keys that `content_hash` covers and `decision_hash` does not."""

JsonObject = dict[str, Any]
