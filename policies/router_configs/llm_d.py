"""llm-d router (endpoint picker): `EndpointPickerConfig`, P and D as scheduling profiles.

Names, defaults and checks are those of llm-d-router at ebab6879 (2026-08-22): what its loader refuses is refused here.
Releases before know the API group `inference.networking.x-k8s.io` only: the format `llm-d-gie` writes that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from features.errors import PolicyError
from policies.families.llm_d_scorers import Params, Profile
from policies.router_configs.base import ConfigFormat, Fields, Imported, read_yaml, whole, write_yaml

SOURCE = "llm-d-router ebab6879"
API = "llm-d.ai/v1alpha1"
OLD_API = "inference.networking.x-k8s.io/v1alpha1"
HANDLER, DECIDER, IN_FLIGHT = "disagg-profile-handler", "always-disagg-pd-decider", "inflight-load-producer"
PRODUCER = "approx-prefix-cache-producer"
PICKERS = ("max-score-picker", "random-picker", "weighted-random-picker")
_GATES = ("flowControl", "haPopulateNonLeaderDatastore")
_SIDES = ("prefill", "decode")

SCORERS: dict[str, tuple[str, dict[str, tuple[str, type]]]] = {
    "queue-scorer": ("queue", {}),
    "running-requests-size-scorer": ("running", {}),
    "kv-cache-utilization-scorer": ("kv_cache_utilization", {}),
    "load-aware-scorer": ("load_aware", {"threshold": ("threshold", int)}),
    "active-request-scorer": (
        "active_request",
        {"idleThreshold": ("idle_threshold", int), "maxBusyScore": ("max_busy_score", float)},
    ),
    "prefix-cache-scorer": (
        "prefix_cache",
        {
            "matchLengthWeight": ("match_length_weight", float),
            "matchLengthScaleTokens": ("match_length_scale_tokens", int),
        },
    ),
}
"""Type -> field of its weight, and its parameters with their fields."""

_OTHER_SCORERS = (
    "precise-prefix-cache-scorer", "token-load-scorer", "no-hit-lru-scorer", "lora-affinity-scorer",
    "session-affinity-scorer", "context-length-aware", "endpoint-attribute-scorer", "header-label-affinity-scorer",
    "topology-affinity-scorer", "latency-scorer",
)  # fmt: skip
_ROLE_FILTERS = {"prefill-filter": "prefill", "decode-filter": "decode"}
_OTHER_FILTERS = (
    "label-selector-filter", "encode-filter", "prefix-cache-affinity-filter", "slo-headroom-tier-filter",
    "utilization-filter", "endpoint-attribute-filter", "topology-affinity-filter", "session-affinity-filter",
)  # fmt: skip
_HANDLERS = (
    HANDLER,
    "pd-profile-handler",
    "single-profile-handler",
    "header-profile-handler",
    "disagg-headers-handler",
)
_DECIDERS = ("prefix-based-pd-decider", DECIDER, "always-disagg-multimodal-decider")
_BESIDE = (
    PRODUCER, "precise-prefix-cache-producer", IN_FLIGHT, "predicted-latency-producer", "token-producer",
    "session-id-producer", "burst-prefix-cache-producer", "p2p-source-producer", "utilization-detector",
    "concurrency-detector", "core-metrics-extractor", "metrics-data-source", "file-discovery",
    "request-attribute-reporter", "latency-slo-admitter", "edf-ordering-policy", "slo-deadline-ordering-policy",
    "fcfs-ordering-policy", "static-usage-limit-policy", "priority-holdback-policy", "soft-reflective-ceiling-policy",
)  # fmt: skip
_TYPES = {*SCORERS, *_OTHER_SCORERS, *_ROLE_FILTERS, *_OTHER_FILTERS, *PICKERS, *_HANDLERS, *_DECIDERS, *_BESIDE}


@dataclass(frozen=True, slots=True)
class _Plugin:
    kind: str
    parameters: dict[str, Any]
    place: str


def read(text: str) -> Imported:
    """The profiles `prefill` and `decode` (or those that the handler names)."""
    top = Fields(read_yaml(text), "$")
    version, kind = top.need("apiVersion", str), top.need("kind", str)
    if version not in (API, OLD_API) or kind != "EndpointPickerConfig":
        raise PolicyError("must be an EndpointPickerConfig of a known version", value=f"{version} {kind}", place="$")
    for at, gate in enumerate(top.take("featureGates", list, [])):
        if not isinstance(gate, str) or gate.partition("=")[0] not in _GATES or gate.partition("=")[2] not in (
            "", "true", "false",
        ):  # fmt: skip
            raise PolicyError("must be a feature gate", value=gate, place=f"$.featureGates[{at}]")
    plugins = _plugins(top.take("plugins", list, []))
    notes = top.note("dataLayer", "flowControl", "requestHandler", "saturationDetector", "parser")
    profiles = _profiles(top.take("schedulingProfiles", list, []), plugins)
    top.done()
    notes += [f"{name}: {p.kind}" for name, p in plugins.items() if p.kind in (*_BESIDE, *_DECIDERS) and p.parameters]
    handlers = [p for p in plugins.values() if p.kind in _HANDLERS]
    if len(handlers) > 1:
        raise PolicyError("a config must have one profile handler", value=len(handlers), place="$.plugins")
    if not handlers or handlers[0].kind != HANDLER:
        found = handlers[0].kind if handlers else None
        raise PolicyError(f"a P/D pool has the handler {HANDLER}", value=found, place="$.plugins")
    names = _sides(handlers[0], plugins)
    made = {}
    for side, name in names.items():
        if name not in profiles:
            raise PolicyError("the handler's profile must exist", value=name, place="$.schedulingProfiles")
        made[side] = _profile(side, profiles[name], plugins)
    return Imported("llm_d_scorers", Params(**made), tuple(notes))


def _plugins(items: list[Any]) -> dict[str, _Plugin]:
    found: dict[str, _Plugin] = {}
    for at, item in enumerate(items):
        fields = Fields(item, f"$.plugins[{at}]")
        kind = fields.need("type", str)
        name = fields.take("name", str, kind)
        parameters = fields.take("parameters", dict, {})
        fields.done()
        if kind not in _TYPES:
            raise PolicyError("no plugin of this type is registered", value=kind, place=fields.place)
        if name in found:
            raise PolicyError("a plugin name must be unique", value=name, place=fields.place)
        found[name] = _Plugin(kind, parameters, f"{fields.place}.parameters")
    return found


def _profiles(items: list[Any], plugins: dict[str, _Plugin]) -> dict[str, list[tuple[str, float | None]]]:
    found: dict[str, list[tuple[str, float | None]]] = {}
    for at, item in enumerate(items):
        fields = Fields(item, f"$.schedulingProfiles[{at}]")
        name = fields.need("name", str)
        if name in found or not name:
            raise PolicyError("a profile must have a name of its own", value=name, place=fields.place)
        references = []
        for k, each in enumerate(fields.take("plugins", list, [])):
            entry = Fields(each, f"{fields.place}.plugins[{k}]")
            reference, weight = entry.need("pluginRef", str), entry.take("weight", float)
            entry.done()
            if reference not in plugins:
                raise PolicyError("a reference must name a plugin", value=reference, place=entry.place)
            references.append((reference, weight))
        fields.done()
        found[name] = references
    return found


def _sides(handler: _Plugin, plugins: dict[str, _Plugin]) -> dict[str, str]:
    fields = Fields(handler.parameters, handler.place)
    profiles = Fields(fields.take("profiles", dict, {}), f"{handler.place}.profiles")
    deciders = Fields(fields.take("deciders", dict, {}), f"{handler.place}.deciders")
    fields.done()
    names = {side: profiles.take(side, str, side) for side in _SIDES}
    profiles.note("encode")
    profiles.done()
    for side in ("prefill", "encode"):
        name = deciders.take(side, str)
        if name is not None and (name not in plugins or plugins[name].kind not in _DECIDERS):
            raise PolicyError("a decider must be a plugin that decides", value=name, place=f"{deciders.place}.{side}")
        if side == "prefill" and name is not None and plugins[name].kind == "prefix-based-pd-decider":
            _decides(plugins[name])
    deciders.done()
    return names


def _decides(decider: _Plugin) -> None:
    fields = Fields(decider.parameters, decider.place)
    limits = [fields.take(key, int, 0) for key in ("nonCachedTokens", "promptTokens")]
    fields.done()
    if not any(limit > 0 for limit in limits):
        raise PolicyError("a decider without a limit never sends a prompt to a P", value=0, place=decider.place)


def _profile(side: str, references: list[tuple[str, float | None]], plugins: dict[str, _Plugin]) -> Profile:
    values: dict[str, Any] = {field: 0.0 for field, _ in SCORERS.values()}
    filters, pickers = [], []
    for name, weight in references:
        plugin = plugins[name]
        if plugin.kind in SCORERS:
            field, parameters = SCORERS[plugin.kind]
            fields = Fields(plugin.parameters, plugin.place)
            for key, (target, kind) in parameters.items():
                if key in fields.left:
                    values[target] = float(fields.take(key, kind))
            fields.note("prefixMatchInfoProducerName", "inFlightLoadProducerName", "requestTimeout")
            fields.done()
            values[field] += 1.0 if weight is None else weight
        elif plugin.kind in _ROLE_FILTERS:
            filters.append(_ROLE_FILTERS[plugin.kind])
        elif plugin.kind in PICKERS:
            pickers.append(plugin.kind)
        elif plugin.kind in (*_OTHER_SCORERS, *_OTHER_FILTERS):
            raise PolicyError("this plugin is not modelled", value=plugin.kind, place=f"profile {side}")
        else:
            raise PolicyError("a profile has filters, scorers and a picker", value=plugin.kind, place=f"profile {side}")
    if filters != [side]:
        raise PolicyError(
            f"the profile must have the filter {side}-filter alone", value=filters, place=f"profile {side}"
        )
    if len(pickers) > 1:
        raise PolicyError("a profile must have one picker", value=pickers, place=f"profile {side}")
    return Profile(**values, picker=pickers[0] if pickers else PICKERS[0])  # type: ignore[arg-type]


def write(params: Params, version: str = API) -> str:
    """A config that always sends prompts to a P. The routers need a new ConfigMap and a rollout to take it."""
    plugins: dict[str, dict[str, Any]] = {PRODUCER: {"type": PRODUCER}}
    profiles = []
    for side in _SIDES:
        profile: Profile = getattr(params, side)
        references: list[dict[str, Any]] = [{"pluginRef": f"{side}-filter"}]
        plugins[f"{side}-filter"] = {"type": f"{side}-filter"}
        for kind, (field, parameters) in SCORERS.items():
            weight = getattr(profile, field)
            if weight == 0.0:
                continue
            name = f"{side}-{kind}" if parameters else kind
            plugins[name] = {"type": kind} if name == kind else {"name": name, "type": kind}
            if parameters:
                plugins[name]["parameters"] = {
                    key: _value(getattr(profile, target), kind_of, f"{side}.{target}")
                    for key, (target, kind_of) in parameters.items()
                }
            if kind == "active-request-scorer":
                plugins[IN_FLIGHT] = {"type": IN_FLIGHT}
            references.append({"pluginRef": name, "weight": whole(weight)})
        plugins[profile.picker] = {"type": profile.picker}
        references.append({"pluginRef": profile.picker})
        profiles.append({"name": side, "plugins": references})
    plugins[DECIDER] = {"type": DECIDER}
    plugins[HANDLER] = {"type": HANDLER, "parameters": {"deciders": {"prefill": DECIDER}}}
    body = {"apiVersion": version, "kind": "EndpointPickerConfig"}
    return write_yaml(body | {"plugins": list(plugins.values()), "schedulingProfiles": profiles})


def _value(value: float, kind: type, place: str) -> float | int:
    if kind is int and value != int(value):
        raise PolicyError("must be a whole number", value=value, place=place)
    return whole(value)


YAML = ConfigFormat("llm-d", "llm_d_scorers", SOURCE, read, write)
OLD_YAML = ConfigFormat("llm-d-gie", "llm_d_scorers", SOURCE, read, lambda params: write(params, OLD_API))
