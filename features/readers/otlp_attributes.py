"""What spans of engines and routers say about a request: attributes of OTLP/JSON -> columns of `request_parts`.

Names are those of vLLM (span `llm_request`, old and current `gen_ai.usage.*`), the llm-d router (`gateway.*`,
`pick_endpoints`, `llm_d.epp.*`), its sidecar (`llm_d.pd_proxy.*`) and SGLang (root span `<role> Req …` and its stages).
An attribute that is not named here is never looked at: prompts, completions and user names have no way in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Columns = dict[str, Any]
Attributes = dict[str, Any]
NS_PER_US = 1_000
_US_PER_S, _US_PER_MS = 1_000_000, 1_000
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
_ROLES = ("llm_d.role", "llm-d.ai/role", "disaggregation.mode", "disaggregation_mode", "role", "service.name")
_LOCAL = re.compile(r"^(localhost|127\.|\[?::1)")
_ENGINE_PREFIX = re.compile(r"^(chatcmpl|cmpl)-")
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


_SECONDS = tuple(
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
WANTED: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    **dict.fromkeys((*REQUEST_IDS, *_NODE_NAMES, *_ROLES), _text),
    **dict.fromkeys(("gen_ai.request.model", "gen_ai.response.model", "target_model"), _text),
    **dict.fromkeys(("gen_ai.response.finish_reasons", "gen_ai.response.finish_reason"), _text),
    **dict.fromkeys(("gen_ai.conversation.id", "llm_d.pd_proxy.prefill_target", "llm_d.pd_proxy.connector"), _text),
    **dict.fromkeys(("llm_d.pd_proxy.decode.target", "llm_d.pd_proxy.kv_connector"), _text),
    **dict.fromkeys(("llm_d.epp.pd.prefill_pod_address", "llm_d.epp.pd.prefill_pod_port"), _text),
    **dict.fromkeys(_SECONDS, _number),
    "llm_d.pd_proxy.prefill.duration_ms": _number,
    "llm_d.pd_proxy.true_ttft_ms": _number,
    "llm_d.epp.pd.disaggregation_used": _truth,
    **dict.fromkeys(_COUNTS, _whole),
}
"""Attribute -> how its value is read; TypeError or ValueError if it is of another type."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose spans these are: its node, without a rank and null if unnamed, and its role, "" if it tells none."""

    worker: str | None = None
    role: str = ""

    def node(self, attributes: Attributes) -> str | None:
        """`<worker>/dp<rank>`."""
        return None if self.worker is None else f"{self.worker}/dp{attributes.get('dp_rank', 0)}"


def origin(resource: Attributes) -> Origin:
    """Node and role from the resource of the spans.

    A service name names the node only if it ends with a number, as in `vllm-decode-3`: most are those of a whole fleet.
    """
    service = resource.get("service.name", "")
    named = next((resource[name] for name in _NODE_NAMES if resource.get(name)), None)
    worker = named or (service if re.search(r"\d$", service) else None)
    told = next((resource[name] for name in _ROLES if resource.get(name)), "")
    role = next((role for role in ("prefill", "decode") if role in told.lower()), "")
    return Origin(worker, role)


def request_of(attributes: Attributes) -> str | None:
    """The request's id as the router knows it: engines put `chatcmpl-` or `cmpl-` before it, `-0` behind the latter."""
    for name in REQUEST_IDS:  # loops rather than generators here: this runs for every span
        given = attributes.get(name)
        if given:
            break
    else:
        return None
    found = _ENGINE_PREFIX.match(given)
    if found is None:
        return str(given)
    return str(given)[found.end() :].removesuffix("-0" if found.group(1) == "cmpl" else "\0") or str(given)


def first_known(attributes: Attributes, *names: str) -> Any:  # noqa: ANN401  any attribute's value
    """The value of the first name that the span has."""
    for name in names:
        if name in attributes:
            return attributes[name]
    return None


def model_of(attributes: Attributes) -> Any:  # noqa: ANN401
    """The model's name."""
    return first_known(attributes, "gen_ai.response.model", "gen_ai.request.model", "target_model") or None


def target(attributes: Attributes, name: str) -> str | None:
    """An address `host:port` as a node. The sidecar's own machine is no name for one."""
    address = attributes.get(name)
    return None if not address or _LOCAL.match(address) else f"{address}/dp0"


def after(start_us: int, attributes: Attributes, name: str, unit_us: int = _US_PER_S) -> int | None:
    """`start_us` and a duration attribute; null if the span does not know it."""
    length: float | None = attributes.get(name)
    if length is None:
        return None
    if abs(length) * unit_us > _LONGEST_S * _US_PER_S:
        raise OverflowError(name)
    return start_us + round(length * unit_us)


def served(attributes: Attributes, start_us: int, end_us: int | None) -> Columns:
    """What an engine's span over a whole request says: vLLM's `llm_request` and SGLang's root span.

    The engine's arrival is the span's start, latencies are seconds. The time in prefill ends with the first token, and
    what is left between arrival and its start is queueing (and tokenising, which `time_in_queue` leaves out).
    """
    first_us = after(start_us, attributes, "gen_ai.latency.time_to_first_token")
    queued_us = after(start_us, attributes, "gen_ai.latency.time_in_queue")
    prefill = attributes.get("gen_ai.latency.time_in_model_prefill")
    began_us, done_us = queued_us, None
    if prefill is not None and first_us is not None:
        began_us, done_us = after(first_us, {"": -prefill}, ""), first_us
    elif prefill is not None and queued_us is not None:
        done_us = after(queued_us, {"": prefill}, "")
    finished_us = after(start_us, attributes, "gen_ai.latency.e2e")
    return {
        "arrived_at_us": start_us,
        "session_id": attributes.get("gen_ai.conversation.id"),
        "model": model_of(attributes),
        "prompt_tokens": first_known(attributes, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "output_tokens": first_known(attributes, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        "max_output_tokens": attributes.get("gen_ai.request.max_tokens"),
        "finish_reason": _FINISH.get(
            first_known(attributes, "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason") or ""
        ),
        "prefill_cached_tokens": first_known(
            attributes, "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens"
        ),
        "prefill_started_at_us": began_us,
        "prefill_finished_at_us": done_us,
        "first_token_at_us": first_us,
        "finished_at_us": end_us if finished_us is None else finished_us,
    }


MS = _US_PER_MS
