"""What spans of engines and routers say about a request: attributes of OTLP/JSON -> columns of `request_parts`.

Names are those of vLLM (span `llm_request`, old and current `gen_ai.usage.*`), the llm-d router (`gateway.*`,
`pick_endpoints`, `llm_d.epp.*`), its sidecar (`llm_d.pd_proxy.*`) and SGLang (root span `<role> Req …` and its stages).
An attribute that is not named here is never looked at: prompts, completions and user names have no way in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

Attributes = dict[str, Any]
NS_PER_US = 1_000
US_PER_S, US_PER_MS = 1_000_000, 1_000
_LONGEST_S = 1e7
"""No stage takes longer; a larger number is another unit or damaged."""

REQUEST_IDS = (
    "gen_ai.request.id",
    "llm_d.pd_proxy.request_id",
    "rid",
    "x-request-id",
    "http.request.header.x-request-id",
    "request_id",
    "request.id",
)
"""Where a span may name its request, the first known one counts."""
_NODE_NAMES = ("k8s.pod.name", "service.instance.id", "host.name")
_MODELS = ("gen_ai.response.model", "gen_ai.request.model", "target_model")
_FINISH_REASONS = ("gen_ai.response.finish_reasons", "gen_ai.response.finish_reason")
_ROLES = ("llm_d.role", "llm-d.ai/role", "disaggregation.mode", "disaggregation_mode", "role", "service.name")
_LOCAL = r"^(localhost|127\.|\[?::1)"
_NUMBERED = r"\d\n?$"
_FINISH = {
    "stop": "stop",
    "eos": "stop",
    "tool_calls": "stop",
    "length": "length",
    "abort": "cancelled",
    "cancelled": "cancelled",
    "error": "failed",
}


def _text(value: Mapping[str, Any]) -> str:
    if "arrayValue" in value:  # headers and finish reasons are lists; the first entry stands for them
        entries = value["arrayValue"].get("values") or ()
        return _text(entries[0]) if entries else ""
    given = value.get("stringValue")
    if given is None:
        given = value.get("intValue")
    if not isinstance(given, str | int) or isinstance(given, bool):
        raise TypeError
    return str(given)


def _whole(value: Mapping[str, Any]) -> int:
    given = value.get("intValue")  # int64 is written as a string, but not by everyone
    if given is None:
        given = value.get("doubleValue")
        if not isinstance(given, int | float) or given != int(given):
            raise TypeError
    if isinstance(given, bool) or not -(2**63) <= int(given) < 2**63:
        raise TypeError
    return int(given)


def _number(value: Mapping[str, Any]) -> float:
    given = value.get("doubleValue", value.get("intValue"))
    if given is None or isinstance(given, bool):
        raise TypeError
    if not math.isfinite(float(given)):
        raise TypeError
    return float(given)


def _truth(value: Mapping[str, Any]) -> bool:
    if not isinstance(value.get("boolValue"), bool):
        raise TypeError
    return bool(value["boolValue"])


@dataclass(frozen=True, slots=True)
class Kind:
    """What an attribute is.

    `read`: its value of any writing; TypeError, ValueError or OverflowError if it is of another type.
    `plain`: the usual writings, as compact JSON, and in its one group what `read` makes of them, as text.
    """

    dtype: Any
    read: Callable[[Mapping[str, Any]], Any]
    plain: str


TEXT = Kind(pl.String, _text, r'^\{(?:"arrayValue":\{"values":\[\{)?"(?:string|int)Value":"([^"\\]*)"\}(?:\]\}\})?$')
WHOLE = Kind(pl.Int64, _whole, r'^\{"intValue":"?(-?[0-9]{1,18})"?\}$')
NUMBER = Kind(pl.Float64, _number, r'^\{"(?:int|double)Value":"?(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"?\}$')
TRUTH = Kind(pl.Boolean, _truth, r'^\{"boolValue":(true|false)\}$')

_TTFT, _E2E, _QUEUE, _PREFILL, _ = _SECONDS = tuple(
    f"gen_ai.latency.{name}"
    for name in ("time_to_first_token", "e2e", "time_in_queue", "time_in_model_prefill", "time_in_model_decode")
)
_COUNTS = (
    "gen_ai.usage.prompt_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.completion_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.cached_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.request.max_tokens",
    "request_prio",
    "dp_rank",
)
WANTED: Mapping[str, Kind] = {
    **dict.fromkeys((*REQUEST_IDS, *_NODE_NAMES, *_ROLES, *_MODELS, *_FINISH_REASONS), TEXT),
    **dict.fromkeys(("gen_ai.conversation.id", "llm_d.pd_proxy.prefill_target", "llm_d.pd_proxy.connector"), TEXT),
    **dict.fromkeys(("llm_d.pd_proxy.decode.target", "llm_d.pd_proxy.kv_connector"), TEXT),
    **dict.fromkeys(("llm_d.epp.pd.prefill_pod_address", "llm_d.epp.pd.prefill_pod_port"), TEXT),
    **dict.fromkeys((*_SECONDS, "llm_d.pd_proxy.prefill.duration_ms", "llm_d.pd_proxy.true_ttft_ms"), NUMBER),
    "llm_d.epp.pd.disaggregation_used": TRUTH,
    **dict.fromkeys(_COUNTS, WHOLE),
}
"""The attributes that are looked at. Each is a column of its name in frames of spans and of resources."""


def _filled(*names: str) -> pl.Expr:
    """The first text that is not empty."""
    return pl.coalesce(pl.when(pl.col(name) != "").then(pl.col(name)) for name in names)


def _worker() -> pl.Expr:
    """A service name names the node only if it ends with a number, as in `vllm-decode-3`: most are those of a fleet."""
    service = pl.col("service.name")
    return pl.coalesce(_filled(*_NODE_NAMES), pl.when(service.str.contains(_NUMBERED)).then(service))


def _role() -> pl.Expr:
    told = _filled(*_ROLES).str.to_lowercase()
    roles = [pl.when(told.str.contains(role, literal=True)).then(pl.lit(role)) for role in ("prefill", "decode")]
    return pl.coalesce(*roles, pl.lit(""))


WORKER, ROLE = "sender.worker", "sender.role"
ORIGIN = (_worker().alias(WORKER), _role().alias(ROLE))
"""Of a resource: whose spans these are, without a rank and null if unnamed, and its role, "" if it tells none."""
NODE = pl.format("{}/dp{}", pl.col(WORKER), pl.col("dp_rank").fill_null(0))
"""The node that sent a span: `<worker>/dp<rank>`."""


def _request() -> pl.Expr:
    given = _filled(*REQUEST_IDS)
    bare = (
        pl.when(given.str.starts_with("chatcmpl-"))
        .then(given.str.strip_prefix("chatcmpl-"))
        .when(given.str.starts_with("cmpl-"))
        .then(given.str.strip_prefix("cmpl-").str.strip_suffix("-0"))
        .otherwise(given)
    )
    return pl.when(bare == "").then(given).otherwise(bare)


REQUEST = _request()
"""The request's id as the router knows it: engines put `chatcmpl-` or `cmpl-` before it, `-0` behind the latter."""
_MODEL = pl.coalesce(_MODELS)
MODEL = pl.when(_MODEL != "").then(_MODEL)


def target(name: str) -> pl.Expr:
    """An address `host:port` as a node. The sidecar's own machine is no name for one."""
    address = pl.col(name)
    return pl.when(address != "", ~address.str.contains(_LOCAL)).then(pl.format("{}/dp0", address))


def after(at: pl.Expr, name: str, unit_us: int = US_PER_S) -> pl.Expr:
    """A time and a duration attribute; null if the span does not know it."""
    return at + (pl.col(name) * unit_us).round().cast(pl.Int64, strict=False)


def too_long(name: str, unit_us: int = US_PER_S) -> pl.Expr:
    """The rule that a duration attribute breaks, null if it can be one."""
    return pl.when(pl.col(name).abs() * unit_us > _LONGEST_S * US_PER_S).then(pl.lit(f"{name}|max"))


START_US, END_US = pl.col("span.start_us"), pl.col("span.end_us")
"""Unix microseconds; the end is null if the span never ended."""


def _served() -> dict[str, pl.Expr]:
    first_us, queued_us = after(START_US, _TTFT), after(START_US, _QUEUE)
    prefill_us = (pl.col(_PREFILL) * US_PER_S).round().cast(pl.Int64, strict=False)
    to_first = prefill_us.is_not_null() & first_us.is_not_null()
    return {
        "arrived_at_us": START_US,
        "session_id": pl.col("gen_ai.conversation.id"),
        "model": MODEL,
        "prompt_tokens": pl.coalesce("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "output_tokens": pl.coalesce("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        "max_output_tokens": pl.col("gen_ai.request.max_tokens"),
        "finish_reason": pl.coalesce(_FINISH_REASONS).replace_strict(_FINISH, default=None, return_dtype=pl.String),
        "prefill_cached_tokens": pl.coalesce("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens"),
        "prefill_started_at_us": pl.when(to_first).then(first_us - prefill_us).otherwise(queued_us),
        "prefill_finished_at_us": pl.when(to_first).then(first_us).otherwise(queued_us + prefill_us),
        "first_token_at_us": first_us,
        "finished_at_us": after(START_US, _E2E).fill_null(END_US),
    }


SERVED = _served()
"""What an engine's span over a whole request says: vLLM's `llm_request` and SGLang's root span.

The engine's arrival is the span's start, latencies are seconds. The time in prefill ends with the first token, and
what is left between arrival and its start is queueing (and tokenising, which `time_in_queue` leaves out).
"""
SERVED_TOO_LONG = pl.coalesce(
    too_long(_TTFT),
    too_long(_QUEUE),
    pl.when(pl.any_horizontal(pl.col(_TTFT, _QUEUE).is_not_null())).then(too_long(_PREFILL)),
    too_long(_E2E),
)
