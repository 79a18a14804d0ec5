"""Arguments of SGLang's model gateway (SMG 1.9, sglang-router 0.3.2) and of vllm-router 0.1.17."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from features.errors import PolicyError
from policies.families.sglang_cache_aware import Params, PolicyName
from policies.router_configs.base import ConfigFormat, Imported, whole

FAMILY = "sglang_cache_aware"
_NUMBERS = {
    "cache-threshold": "cache_threshold",
    "balance-abs-threshold": "balance_abs_threshold",
    "balance-rel-threshold": "balance_rel_threshold",
}
_LEAST_LOAD = {
    "least-load-kv-pressure-weight": "least_load_kv_pressure_weight",
    "least-load-mean-prefill-tokens": "least_load_mean_prefill_tokens",
    "least-load-default-throughput": "least_load_default_throughput",
}
_WHOLE = ("balance_abs_threshold", "least_load_mean_prefill_tokens")
_NOT_MODELLED = ("bucket", "prefix_hash", "manual", "consistent_hashing", "consistent_hash", "passthrough", "kv_aware",
                 "sticky_least_loaded")  # fmt: skip
_OFF = ("balance-token-usage-threshold", "overload-token-usage-threshold")
"""Arguments whose value of 1.0 switches them off, the only one that is modelled."""
_SWITCHES = ("pd-disaggregation", "vllm-pd-disaggregation", "service-discovery", "dp-aware", "enable-igw",
             "disable-retries", "disable-circuit-breaker", "disable-health-check", "log-json")  # fmt: skip
_OTHERS = (
    "host", "port", "worker-urls", "prefill", "decode", "selector", "prefill-selector", "decode-selector",
    "load-monitor-interval", "eviction-interval-secs", "max-tree-size", "block-size", "bucket-adjust-interval-secs",
    "max-idle-secs", "assignment-mode", "max-concurrent-requests", "queue-size", "queue-timeout-secs", "log-dir",
    "log-level", "prometheus-port", "prometheus-host", "request-timeout-secs", "model-path", "tokenizer-path",
    "api-key", "service-discovery-port", "service-discovery-namespace", "worker-startup-timeout-secs",
    "max-payload-size", "kv-connector",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gateway:
    """What one program of the line takes: its policies, and the argument that switches P/D on."""

    name: str
    source: str
    policies: tuple[str, ...]
    switch: str


SMG = Gateway("smg", "smg model_gateway 1.9.0", get_args(PolicyName), "pd-disaggregation")
SGLANG = Gateway("sglang-router", "sglang-router 0.3.2", get_args(PolicyName)[:4], "pd-disaggregation")
VLLM = Gateway("vllm-router", "vllm-router 0.1.17", get_args(PolicyName)[:4], "vllm-pd-disaggregation")


def read_args(gateway: Gateway, text: str) -> Imported:
    """Parameters of a command line, one or several lines, of the program's arguments alone."""
    values: dict[str, str] = {}
    notes: list[str] = []
    for name, words in _arguments(text):
        if name in _OFF:
            if _number(name, words) != 1.0:
                raise PolicyError("only 1.0, which is off, is modelled", value=words[0], place=f"--{name}")
        elif name in _SWITCHES:
            notes += [] if name == gateway.switch else [f"--{name}"]
        elif name in {"policy", "prefill-policy", "decode-policy", *_NUMBERS, *_least_load(gateway)}:
            if len(words) != 1:
                raise PolicyError("an argument takes one value", value=" ".join(words), place=f"--{name}")
            values[name] = words[0]
        elif name in _OTHERS:
            notes.append(f"--{name} {' '.join(words)}"[:200])
        else:
            raise PolicyError(f"{gateway.name} knows no such argument", value=f"--{name}")
    main = values.pop("policy", "cache_aware")
    made: dict[str, object] = {}
    for side in ("prefill", "decode"):
        made[f"{side}_policy"] = _policy(gateway, values.pop(f"{side}-policy", main), f"--{side}-policy")
    fields = _NUMBERS | _least_load(gateway)
    for name, value in values.items():
        number = _number(name, [value])
        if fields[name] in _WHOLE and number != int(number):
            raise PolicyError("must be a whole number", value=value, place=f"--{name}")
        made[fields[name]] = number
    return Imported(FAMILY, Params(**made), tuple(notes))  # type: ignore[arg-type]  # names and types as checked


def write_args(gateway: Gateway, params: Params) -> str:
    """Arguments, one a line. PolicyError for a policy that the program lacks, and for fractions of whole numbers."""
    lines = [f"--{gateway.switch}"]
    for side in ("prefill", "decode"):
        name = f"{side}-policy"
        lines.append(f"--{name} {_policy(gateway, getattr(params, f'{side}_policy'), f'--{name}')}")
    uses_load = "least_load" in {params.prefill_policy, params.decode_policy}
    for name, field in (_NUMBERS | (_LEAST_LOAD if uses_load else {})).items():
        value = getattr(params, field)
        if field in _WHOLE and value != int(value):
            raise PolicyError("must be a whole number", value=value, place=f"--{name}")
        lines.append(f"--{name} {whole(value)}")
    return "\n".join(lines) + "\n"


def _arguments(text: str) -> Iterator[tuple[str, list[str]]]:
    try:
        words = shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise PolicyError("arguments must be words of a shell", value=str(error)) from None
    seen: set[str] = set()
    name, held = "", list[str]()
    for word in [*words, "--"]:
        if not word.startswith("--"):
            if not name:
                raise PolicyError("arguments must start with --", value=word)
            held.append(word)
            continue
        if name:
            yield name, held
        name, equals, value = word[2:].removeprefix("router-").partition("=")
        held = [value] if equals else []
        if name in seen and name not in ("prefill", "decode"):
            raise PolicyError("an argument must stand once", value=f"--{name}")
        seen.add(name)


def _least_load(gateway: Gateway) -> dict[str, str]:
    return _LEAST_LOAD if "least_load" in gateway.policies else {}


def _policy(gateway: Gateway, name: str, place: str) -> str:
    if name in gateway.policies:
        return name
    if name in _NOT_MODELLED:
        raise PolicyError("this policy is not modelled", value=name, place=place)
    raise PolicyError(f"{gateway.name} has no such policy", value=name, place=place)


def _number(name: str, words: list[str]) -> float:
    try:
        (word,) = words
        return float(word)
    except ValueError:
        raise PolicyError("must be one number", value=" ".join(words), place=f"--{name}") from None


def _format(gateway: Gateway) -> ConfigFormat:
    return ConfigFormat(
        gateway.name,
        FAMILY,
        gateway.source,
        lambda text: read_args(gateway, text),
        lambda params: write_args(gateway, params),
    )


FORMATS = tuple(_format(gateway) for gateway in (SMG, SGLANG, VLLM))
