"""Which spans say something about a request, and what: spans -> kind, rank and columns of `request_parts`.

The kind is the front of `part`; features/derived/requests_from_parts.sql goes by it. Ranks say who is believed:

    0  router decision, hand-off to P       1  router pick, sidecar's targets      2  the engine that did the stage
    3  an engine whose role is open         4  another node's view of a stage      5  the sidecar's view of P
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from features.readers.otlp_attributes import (
    END_US,
    MODEL,
    NODE,
    ROLE,
    SERVED,
    SERVED_TOO_LONG,
    START_US,
    US_PER_MS,
    after,
    target,
    too_long,
)

ENGINE_PREFILL, ENGINE_DECODE = "engine.prefill", "engine.decode"
ENGINE_OPEN, ENGINE_ONE_TOKEN = "engine.open", "engine.one_token"
"""An engine that names no role: it may do both phases. One that was asked for a single token may be a P whose sidecar
asked it to prefill only; whether it was, shows when the request's other spans are there."""
_AFTER_PREFILL = ("output_tokens", "max_output_tokens", "finish_reason", "first_token_at_us", "finished_at_us")
_OF_PREFILL = ("prefill_cached_tokens", "prefill_started_at_us", "prefill_finished_at_us")
_SGLANG_ROOT = r"^(prefill|decode|) ?Req "
_NAME = pl.col("span.name")


@dataclass(frozen=True, slots=True)
class Part:
    """What spans of a kind say. A later `rank` is believed less. `too_long`: the rule that one of a duration breaks."""

    kind: str
    rank: int
    columns: Mapping[str, pl.Expr]
    too_long: pl.Expr = field(default_factory=lambda: pl.lit(None, pl.String))


def _engine(kind: str, rank: int, hidden: tuple[str, ...] = (), **more: pl.Expr) -> Part:
    """A whole request on an engine, cut down to what an engine of its role knows."""
    kept = {name: column for name, column in SERVED.items() if name not in hidden}
    return Part(kind, rank, {**kept, **more}, SERVED_TOO_LONG)


def _stage(phase: str, start: str = "", end: str = "", rank: int = 2) -> Part:
    """A stage of SGLang: which columns its start and end are."""
    times = {name: at for name, at in ((start, START_US), (end, END_US)) if name}
    return Part(f"stage.{phase}", rank, {f"{phase}_node": NODE, **times})


def _handoff() -> Part:
    address, port = (pl.col(f"llm_d.epp.pd.prefill_pod_{name}") for name in ("address", "port"))
    used = pl.col("llm_d.epp.pd.disaggregation_used").fill_null(value=True)
    node = pl.when(used, address != "", port != "").then(pl.format("{}:{}/dp0", address, port))
    return Part("router.handoff", 0, {"prefill_node": node})


def _proxy_prefill() -> Part:
    """The sidecar waits for P's answer: its start includes P's queue, its end is that of P's last chunk.

    SGLang's P answers after its KV has left, so that end is another one.
    """
    took = "llm_d.pd_proxy.prefill.duration_ms"
    new, old = pl.col("llm_d.pd_proxy.connector"), pl.col("llm_d.pd_proxy.kv_connector")
    sglang = pl.when(new != "").then(new).otherwise(old).eq_missing(pl.lit("sglang"))
    done_us = pl.when(~sglang).then(after(START_US, took, US_PER_MS).fill_null(END_US))
    return Part("proxy.prefill", 5, {"prefill_finished_at_us": done_us, **_P}, too_long(took, US_PER_MS))


_P = {"prefill_node": target("llm_d.pd_proxy.prefill_target")}
_TARGETS = {**_P, "decode_node": target("llm_d.pd_proxy.decode.target")}
_ON_PREFILL = _engine(ENGINE_PREFILL, 2, _AFTER_PREFILL, prefill_node=NODE)
# To D the prompt is there once its KV has come: its prefill is the step that joins the batch.
_ON_DECODE = _engine(
    ENGINE_DECODE, 2, _OF_PREFILL, decode_node=NODE, decode_admitted_at_us=SERVED["prefill_started_at_us"]
)
_OPEN, _ONE_TOKEN = (_engine(kind, 3, prefill_node=NODE, decode_node=NODE) for kind in (ENGINE_OPEN, ENGINE_ONE_TOKEN))
_ROUTER_REQUEST = Part("router.request", 1, {"arrived_at_us": START_US, "model": MODEL})
_ROUTER_DECISION = Part(
    "router.decision",
    0,
    {"arrived_at_us": START_US, "decided_at_us": END_US, "priority": pl.col("request_prio"), "model": MODEL},
)
_ROUTER_PICK = Part("router.pick", 1, {"decided_at_us": END_US, "model": MODEL})
_HANDOFF = _handoff()
_PROXY_REQUEST = Part("proxy.request", 1, {"arrived_at_us": START_US, **_TARGETS})
_PROXY_PREFILL = _proxy_prefill()
_PROXY_DECODE = Part("proxy.decode", 1, _TARGETS)
_BY_NAME: Mapping[str, Part] = {
    "gateway.request": _ROUTER_REQUEST,
    "gateway.ext_proc.request": _ROUTER_REQUEST,
    "gateway.request_orchestration": _ROUTER_DECISION,
    "gateway.scheduling": _ROUTER_PICK,
    "llm_d.epp.schedule": _ROUTER_PICK,
    "pick_endpoints": _ROUTER_PICK,
    "llm_d.pd_proxy.request": _PROXY_REQUEST,
    "llm_d.pd_proxy.prefill": _PROXY_PREFILL,
    "llm_d.pd_proxy.decode": _PROXY_DECODE,
    "prefill_waiting": _stage("prefill", end="prefill_started_at_us", rank=4),
    "prefill_forward": _stage("prefill", "prefill_started_at_us", "prefill_finished_at_us"),
    # P's transfer begins when its queue takes the KV; D says when it can read it.
    "prefill_transfer_kv_cache": _stage("prefill", "transfer_started_at_us", "transfer_finished_at_us", rank=4),
    "decode_transferred": _stage("decode", end="transfer_finished_at_us"),
    "decode_waiting": _stage("decode", end="decode_admitted_at_us"),
    "decode_forward": _stage("decode", "decode_admitted_at_us", "finished_at_us", rank=4),
}
PARTS = tuple(
    {id(part): part for part in (_ON_PREFILL, _ON_DECODE, _OPEN, _ONE_TOKEN, _HANDOFF, *_BY_NAME.values())}.values()
)
_PLACES = {id(part): place for place, part in enumerate(PARTS)}


def _place(part: Part) -> pl.Expr:
    return pl.lit(_PLACES[id(part)], pl.Int8)


def _has(*names: str) -> pl.Expr:
    return pl.any_horizontal(pl.col(name).is_not_null() for name in names)


def _engine_of(role: pl.Expr) -> pl.Expr:
    return (
        pl.when(role == "prefill")
        .then(_place(_ON_PREFILL))
        .when(role == "decode")
        .then(_place(_ON_DECODE))
        .when(pl.col("gen_ai.request.max_tokens") == 1)
        .then(_place(_ONE_TOKEN))
        .otherwise(_place(_OPEN))
    )


def _part_of() -> pl.Expr:
    told = _NAME.str.extract("^([^ ]*)")
    return (
        pl.when(_NAME == "llm_request")
        .then(_engine_of(pl.col(ROLE)))
        .when(_NAME.is_in(list(_BY_NAME)))
        .then(
            _NAME.replace_strict({n: _PLACES[id(p)] for n, p in _BY_NAME.items()}, default=None, return_dtype=pl.Int8)
        )
        .when(_has("llm_d.epp.pd.disaggregation_used", "llm_d.epp.pd.prefill_pod_address"))
        .then(_place(_HANDOFF))
        .when(_has("rid") & _NAME.str.contains(_SGLANG_ROOT))
        .then(_engine_of(pl.when(told == "").then(pl.col(ROLE)).otherwise(told)))
        .when(_has("llm_d.pd_proxy.decode.target"))
        .then(_place(_PROXY_DECODE))
        .when(_has("llm_d.pd_proxy.prefill.duration_ms"))
        .then(_place(_PROXY_PREFILL))
        .when(_has("llm_d.pd_proxy.prefill_target", "llm_d.pd_proxy.true_ttft_ms"))
        .then(_place(_PROXY_REQUEST))
    )


PART_OF = _part_of()
"""The place in PARTS of the part that a span is; null if it says nothing about a request that we keep."""
