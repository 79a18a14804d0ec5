"""The logs that routecal publishes and in-house routers may write themselves: one JSON object a line.

A field that is unknown is null or left out, never 0. Times are integer unix microseconds UTC. Fields that are not named
here are ignored; text of prompts has no place in either log.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from features.columns import TIME_MAX_US, TIME_MIN_US, TOKENS_END

DIALECT = "https://json-schema.org/draft/2020-12/schema"

TimeUs = Annotated[int, Field(ge=TIME_MIN_US, lt=TIME_MAX_US)]
Count = Annotated[int, Field(ge=0)]
Tokens = Annotated[int, Field(ge=0, lt=TOKENS_END)]
SomeTokens = Annotated[int, Field(ge=1, lt=TOKENS_END)]
Hash = Annotated[int, Field(ge=0, lt=2**64)]
Name = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)

    def to_line(self) -> str:
        """The object as one line of the log, without what is unknown, with its newline."""
        return self.model_dump_json(exclude_none=True) + "\n"


class RequestLogLine(_Line):
    """One request, written when it ended. Stage times come from the nodes that did the stage."""

    request_id: Name = Field(description="Unique within a pool and UTC day; the decision log refers to it.")
    pool: Name | None = Field(None, description="One model behind one P/D fleet; other pools' lines are skipped.")
    arrived_at_us: TimeUs = Field(description="The router received it; its UTC day is the partition.")
    slo_class: Name | None = Field(None, description="If absent, the class rules of the settings decide.")
    priority: int | None = None
    deadline_us: TimeUs | None = None
    tenant: Name | None = None
    app: Name | None = None
    session_id: Name | None = None
    parent_request_id: Name | None = None
    model: Name | None = None
    prompt_tokens: SomeTokens
    output_tokens: Tokens | None = None
    max_output_tokens: Tokens | None = None
    finish_reason: Literal["stop", "length", "cancelled", "rejected", "failed"] | None = None
    block_tokens: SomeTokens | None = Field(None, description="Tokens of a hashed block.")
    block_hashes: list[Hash] | None = Field(
        None, description="Chained hash (parent, tokens) of each block of the prompt, in order, unsigned 64 bit."
    )
    block_hash_scope: Name | None = Field(None, description="Equal hashes mean equal prefixes within one scope.")
    prefill_cached_tokens: Count | None = Field(None, description="Tokens of the prompt that P had cached.")
    cached_tier: Name | None = None
    decode_resident_tokens: Count | None = Field(None, description="Tokens of the prompt that D held already.")
    router_id: Name | None = None
    policy_version: Name | None = None
    decided_at_us: TimeUs | None = None
    prefill_node: Name | None = Field(None, description="<worker>/dp<rank>, or a name that the settings alias.")
    decode_node: Name | None = None
    prefill_started_at_us: TimeUs | None = Field(None, description="Start of the P step that took its first chunk.")
    prefill_finished_at_us: TimeUs | None = Field(None, description="End of the P step that took its last chunk.")
    transfer_started_at_us: TimeUs | None = None
    transfer_finished_at_us: TimeUs | None = Field(None, description="The KV is visible on D.")
    decode_admitted_at_us: TimeUs | None = Field(None, description="It joined D's running batch.")
    first_token_at_us: TimeUs | None = None
    finished_at_us: TimeUs | None = None
    transferred_bytes: Count | None = None
    transfer_descriptors: Count | None = None
    preemptions: Count | None = None
    headers: dict[str, str] | None = Field(None, description="Request headers that class rules may ask for.")


class Terms(_Line):
    """Raw terms of a pair, before weights; docs/decision.md defines them. Unknown terms are left out."""

    PrefillWait: Seconds | None = None
    PrefillCompute: Seconds | None = None
    TransferTime: Seconds | None = None
    DecodeWait: Seconds | None = None
    ProjectedKVPressure: Annotated[float, Field(ge=0)] | None = None
    SloRisk: Share | None = None
    PrefixBenefit: Seconds | None = None
    NeighbourHarm: Annotated[float, Field(ge=0)] | None = None
    Crowd: Annotated[float, Field(ge=0)] | None = None


class Candidate(_Line):
    """One pair that passed the hard filters."""

    prefill_node: Name
    decode_node: Name
    terms: Terms | None = None
    score: float | None = Field(None, description="Lower is better.")
    drawn: bool | None = Field(None, description="It was among the pairs that were drawn for comparison.")
    chosen: bool = Field(description="At most one candidate of a decision is.")
    propensity: Share | None = Field(None, description="Probability with which the router would choose this pair.")


class DecisionLogLine(_Line):
    """One decision of a router with all candidates of it."""

    request_id: Name
    pool: Name | None = None
    decided_at_us: TimeUs
    router_id: Name | None = None
    policy_version: Name | None = None
    telemetry_age_us: Count | None = Field(None, description="Age of the newest node sample that the decision used.")
    candidates: list[Candidate]


LOGS: dict[str, type[_Line]] = {"request-log": RequestLogLine, "decision-log": DecisionLogLine}


def json_schema(log: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of a log's lines; `log` is a key of LOGS."""
    title = f"routecal {log.replace('-', ' ')}, version 1"
    body = LOGS[log].model_json_schema(mode="validation")
    return {"$schema": DIALECT, "$id": f"urn:routecal:{log}:1", **body, "title": title}
