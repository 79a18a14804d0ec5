"""Which spans say something about a request, and what: a span -> kind, rank and columns of `request_parts`.

The kind is the front of `part`; features/derived/requests_from_parts.sql goes by it. Ranks say who is believed:

    0  router decision, hand-off to P       1  router pick, sidecar's targets      2  the engine that did the stage
    3  an engine whose role is open         4  another node's view of a stage      5  the sidecar's view of P
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from features.readers.otlp_attributes import MS, Attributes, Columns, Origin, after, model_of, served, target

ENGINE_PREFILL, ENGINE_DECODE = "engine.prefill", "engine.decode"
ENGINE_OPEN, ENGINE_ONE_TOKEN = "engine.open", "engine.one_token"
"""An engine that names no role: it may do both phases. One that was asked for a single token may be a P whose sidecar
asked it to prefill only; whether it was, shows when the request's other spans are there."""
_AFTER_PREFILL = ("output_tokens", "max_output_tokens", "finish_reason", "first_token_at_us", "finished_at_us")
_OF_PREFILL = ("prefill_cached_tokens", "prefill_started_at_us", "prefill_finished_at_us")
_SGLANG_ROOT = re.compile(r"^(prefill|decode|) ?Req ")


@dataclass(frozen=True, slots=True)
class Span:
    """A span with the attributes that are known here. Times are unix microseconds; `end_us` null if it never ended."""

    name: str
    start_us: int
    end_us: int | None
    attributes: Attributes
    origin: Origin

    @property
    def node(self) -> str | None:
        """The node that sent it."""
        return self.origin.node(self.attributes)


@dataclass(frozen=True, slots=True)
class Part:
    """What a span says. A later `rank` is believed less."""

    kind: str
    rank: int
    columns: Columns


def part_of(span: Span) -> Part | None:
    """The part that a span is; None if it says nothing about a request that we keep.

    Raises OverflowError, naming the attribute, if a duration cannot be one.
    """
    known = _BY_NAME.get(span.name)
    if known is not None:
        return known(span)
    if "llm_d.epp.pd.disaggregation_used" in span.attributes or "llm_d.epp.pd.prefill_pod_address" in span.attributes:
        return _handoff(span)
    if "rid" in span.attributes and _SGLANG_ROOT.match(span.name):
        return _engine(span, span.name.split(" ")[0] or span.origin.role)
    if "llm_d.pd_proxy.decode.target" in span.attributes:
        return _proxy_decode(span)
    if "llm_d.pd_proxy.prefill.duration_ms" in span.attributes:
        return _proxy_prefill(span)
    if "llm_d.pd_proxy.prefill_target" in span.attributes or "llm_d.pd_proxy.true_ttft_ms" in span.attributes:
        return _proxy_request(span)
    return None


def _engine(span: Span, role: str) -> Part:
    """A whole request on an engine, cut down to what an engine of its role knows."""
    columns = served(span.attributes, span.start_us, span.end_us)
    if role == "prefill":
        kept = {name: value for name, value in columns.items() if name not in _AFTER_PREFILL}
        return Part(ENGINE_PREFILL, 2, {**kept, "prefill_node": span.node})
    if role == "decode":
        # To D the prompt is there once its KV has come: its prefill is the step that joins the batch.
        kept = {name: value for name, value in columns.items() if name not in _OF_PREFILL}
        joined = {"decode_node": span.node, "decode_admitted_at_us": columns["prefill_started_at_us"]}
        return Part(ENGINE_DECODE, 2, {**kept, **joined})
    kind = ENGINE_ONE_TOKEN if columns["max_output_tokens"] == 1 else ENGINE_OPEN
    return Part(kind, 3, {**columns, "prefill_node": span.node, "decode_node": span.node})


def _llm_request(span: Span) -> Part:
    return _engine(span, span.origin.role)


def _router_request(span: Span) -> Part:
    return Part("router.request", 1, {"arrived_at_us": span.start_us, "model": model_of(span.attributes)})


def _router_decision(span: Span) -> Part:
    columns = {
        "arrived_at_us": span.start_us,
        "decided_at_us": span.end_us,
        "priority": span.attributes.get("request_prio"),
        "model": model_of(span.attributes),
    }
    return Part("router.decision", 0, columns)


def _router_pick(span: Span) -> Part:
    return Part("router.pick", 1, {"decided_at_us": span.end_us, "model": model_of(span.attributes)})


def _handoff(span: Span) -> Part:
    address, port = (span.attributes.get(f"llm_d.epp.pd.prefill_pod_{name}") for name in ("address", "port"))
    used = span.attributes.get("llm_d.epp.pd.disaggregation_used", True)
    node = f"{address}:{port}/dp0" if used and address and port else None
    return Part("router.handoff", 0, {"prefill_node": node})


def _proxy_request(span: Span) -> Part:
    return Part("proxy.request", 1, {"arrived_at_us": span.start_us, **_targets(span)})


def _proxy_prefill(span: Span) -> Part:
    """The sidecar waits for P's answer: its start includes P's queue, its end is that of P's last chunk.

    SGLang's P answers after its KV has left, so that end is another one.
    """
    done_us = after(span.start_us, span.attributes, "llm_d.pd_proxy.prefill.duration_ms", MS)
    connector = span.attributes.get("llm_d.pd_proxy.connector") or span.attributes.get("llm_d.pd_proxy.kv_connector")
    if done_us is None:
        done_us = span.end_us
    return Part("proxy.prefill", 5, {"prefill_finished_at_us": None if connector == "sglang" else done_us} | _p(span))


def _proxy_decode(span: Span) -> Part:
    return Part("proxy.decode", 1, _targets(span))


def _targets(span: Span) -> Columns:
    return {**_p(span), "decode_node": target(span.attributes, "llm_d.pd_proxy.decode.target")}


def _p(span: Span) -> Columns:
    return {"prefill_node": target(span.attributes, "llm_d.pd_proxy.prefill_target")}


def _stage(phase: str, start: str = "", end: str = "", rank: int = 2) -> Callable[[Span], Part]:
    """A stage of SGLang: which columns its start and end are."""

    def part(span: Span) -> Part:
        times = {name: at for name, at in ((start, span.start_us), (end, span.end_us)) if name}
        return Part(f"stage.{phase}", rank, {f"{phase}_node": span.node, **times})

    return part


_BY_NAME: Mapping[str, Callable[[Span], Part]] = {
    "llm_request": _llm_request,
    "gateway.request": _router_request,
    "gateway.ext_proc.request": _router_request,
    "gateway.request_orchestration": _router_decision,
    "gateway.scheduling": _router_pick,
    "llm_d.epp.schedule": _router_pick,
    "pick_endpoints": _router_pick,
    "llm_d.pd_proxy.request": _proxy_request,
    "llm_d.pd_proxy.prefill": _proxy_prefill,
    "llm_d.pd_proxy.decode": _proxy_decode,
    "prefill_waiting": _stage("prefill", end="prefill_started_at_us", rank=4),
    "prefill_forward": _stage("prefill", "prefill_started_at_us", "prefill_finished_at_us"),
    # P's transfer begins when its queue takes the KV; D says when it can read it.
    "prefill_transfer_kv_cache": _stage("prefill", "transfer_started_at_us", "transfer_finished_at_us", rank=4),
    "decode_transferred": _stage("decode", end="transfer_finished_at_us"),
    "decode_waiting": _stage("decode", end="decode_admitted_at_us"),
    "decode_forward": _stage("decode", "decode_admitted_at_us", "finished_at_us", rank=4),
}
