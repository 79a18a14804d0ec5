"""NVIDIA Dynamo 1.6.1: the router policy YAML (`--router-policy-config`), and the older `DYN_ROUTER_*` variables."""

from __future__ import annotations

import re
from typing import Any

from features.errors import PolicyError
from policies.families.dynamo_cost import CostFn, Params
from policies.router_configs.base import ConfigFormat, Fields, Imported, as_fields, read_yaml, whole, write_yaml

TYPE = "dynamo-default-cost-fn"
SOURCE = "ai-dynamo-runtime 1.6.1"
_OTHER_TYPES = ("dynamo-two-tier-cost-fn", "thunderagent")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SIDES = ("prefill", "decode")
_QUEUES = ("default_policy_family", "uncached_isl_buckets", "policy_classes", "models")
_ROUTER = (
    "use_kv_events", "router_replica_sync", "router_track_active_blocks", "router_track_output_blocks",
    "router_assume_kv_reuse", "router_track_prefill_tokens", "router_tracking_hash", "router_tracking_key_file",
    "router_tracking_key_id", "router_prefill_load_model", "router_ttl_secs", "router_approximate_cache_policy",
    "router_event_threads", "use_remote_indexer", "serve_indexer", "enable_session_prefix_index", "shared_cache_type",
    "router_predicted_ttl_secs",
)  # fmt: skip

ENVIRONMENT = {
    "overlap_score_credit": "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT",
    "overlap_score_credit_decay": "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY",
    "prefill_load_scale": "DYN_ROUTER_PREFILL_LOAD_SCALE",
    "decode_active_request_weight": "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT",
    "host_cache_hit_weight": "DYN_ROUTER_HOST_CACHE_HIT_WEIGHT",
    "disk_cache_hit_weight": "DYN_ROUTER_DISK_CACHE_HIT_WEIGHT",
    "router_temperature": "DYN_ROUTER_TEMPERATURE",
}
_OTHER_ENVIRONMENT = (
    "DYN_ROUTER_USE_KV_EVENTS", "DYN_ROUTER_TTL_SECS", "DYN_ROUTER_PREDICTED_TTL_SECS", "DYN_ROUTER_QUEUE_THRESHOLD",
    "DYN_ROUTER_QUEUE_POLICY", "DYN_ROUTER_PREFILL_LOAD_MODEL",
)  # fmt: skip
_SEEN_BY_D = ("decode_active_request_weight", "router_temperature")


def read(text: str) -> Imported:
    """The cost functions of the prefill and the decode pool."""
    top = Fields(read_yaml(text), "$")
    notes = top.note(*_QUEUES)
    base, shared = _router(top.take("router", dict, {}))
    chosen = Fields(top.take("worker_selection", dict, {}), "$.worker_selection")
    top.done()
    found: dict[str, tuple[CostFn | None, str]] = {}
    for at, item in enumerate(chosen.take("instances", list, [])):
        name, instance = _instance(Fields(item, f"$.worker_selection.instances[{at}]"), base, notes)
        if name in found:
            raise PolicyError("an instance name must be unique", value=name, place="$.worker_selection.instances")
        found[name] = instance
    sides = {side: chosen.take(side, str, "default") for side in (*_SIDES, "aggregated", "encode")}
    chosen.done()
    costs = {}
    for side, name in sides.items():
        if name != "default" and name not in found:
            raise PolicyError("a selection must name an instance", value=name, place=f"$.worker_selection.{side}")
        cost, kind = (base, TYPE) if name == "default" else found[name]
        if side in _SIDES and cost is None:
            raise PolicyError(f"only {TYPE} is modelled", value=kind, place=f"$.worker_selection.{side}")
        costs[side] = cost
    return Imported("dynamo_cost", Params(costs["prefill"], costs["decode"]), tuple(notes + shared))  # type: ignore[arg-type]


def _router(value: dict[str, Any]) -> tuple[CostFn, list[str]]:
    """Defaults of all instances."""
    fields = Fields(value, "$.router")
    weights = {
        name: fields.take(name, float, getattr(CostFn(), name))
        for name in ("host_cache_hit_weight", "disk_cache_hit_weight")
    }
    notes = fields.note(*_ROUTER)
    fields.done()
    return CostFn(**weights), notes


def _instance(fields: Fields, base: CostFn, notes: list[str]) -> tuple[str, tuple[CostFn | None, str]]:
    name, kind = fields.need("name", str), fields.need("type", str)
    for value in (name, kind):
        if not _NAME.fullmatch(value):
            raise PolicyError("must be an identifier", value=value, place=fields.place)
    if name == "default":
        raise PolicyError("the name `default` is the router's own", value=name, place=f"{fields.place}.name")
    parameters = Fields(fields.take("parameters", dict, {}), f"{fields.place}.parameters")
    fields.done()
    if kind in _OTHER_TYPES:
        return name, (None, kind)
    if kind != TYPE:
        hint = f"one of {', '.join((TYPE, *_OTHER_TYPES))}"
        raise PolicyError("the router has no such policy", value=kind, place=f"{fields.place}.type", hint=hint)
    values = {key: parameters.take(key, float, default) for key, default in as_fields(base).items()}
    notes += parameters.note("seed", "shared_cache_multiplier")
    parameters.done()
    return name, (CostFn(**values), kind)


def write(params: Params) -> str:
    """A policy file with one instance a pool. PolicyError if D shares blocks: no config says so."""
    _apart(params)
    instances = [
        {
            "name": f"routecal-{side}",
            "type": TYPE,
            "parameters": {name: whole(value) for name, value in as_fields(getattr(params, side)).items()},
        }
        for side in _SIDES
    ]
    return write_yaml({"worker_selection": {side: f"routecal-{side}" for side in _SIDES} | {"instances": instances}})


def read_environment(text: str) -> Imported:
    """The one cost function of both pools, from lines `NAME=value`."""
    values: dict[str, float] = {}
    notes: list[str] = []
    names = {variable: name for name, variable in ENVIRONMENT.items()}
    for number, line in enumerate(text.splitlines(), start=1):
        variable, equals, value = line.strip().removeprefix("export ").partition("=")
        place = f"line {number}"
        if not variable or variable.startswith("#"):
            continue
        if not equals:
            raise PolicyError("a line must be NAME=value", value=line.strip(), place=place)
        value = value.strip("'\"")
        if variable == "DYN_ROUTER_MODE" and value != "kv":
            raise PolicyError("`dynamo_cost` is the router mode kv", value=value, place=place)
        if variable in names:
            if names[variable] in values:
                raise PolicyError("a variable must stand once", value=variable, place=place)
            values[names[variable]] = _number(value, place)
        elif variable in _OTHER_ENVIRONMENT:
            notes.append(f"{variable} = {value}")
        elif variable != "DYN_ROUTER_MODE":
            raise PolicyError("the router knows no such variable", value=variable, place=place)
    both = CostFn(**values)
    return Imported("dynamo_cost", Params(both, both), tuple(notes))


def write_environment(params: Params) -> str:
    """Lines `NAME=value`. PolicyError as `write`, and if P and D differ in what both read: there is one set."""
    _apart(params)
    for name in _SEEN_BY_D:
        if getattr(params.prefill, name) != getattr(params.decode, name):
            raise PolicyError(
                "P and D must agree where the environment has one value", value=name, hint="use the format `dynamo`"
            )
    lines = [f"{ENVIRONMENT[name]}={whole(value)}" for name, value in as_fields(params.prefill).items()]
    return "\n".join(["DYN_ROUTER_MODE=kv", *lines]) + "\n"


def _apart(params: Params) -> None:
    if params.assume_kv_reuse:
        raise PolicyError("the router never assumes KV reuse where P and D are apart", value="assume_kv_reuse")


def _number(value: str, place: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise PolicyError("must be a number", value=value, place=place) from None


YAML = ConfigFormat("dynamo", "dynamo_cost", SOURCE, read, write)
ENV = ConfigFormat("dynamo-env", "dynamo_cost", SOURCE, read_environment, write_environment)
