"""`sglang_cache_aware`: SGLang's model gateway (SMG 1.9), one of its policies for P and one for D. docs/adr/0011.

- `cache_aware`: loads are the gateway's own requests that have not ended. Out of balance (max - min >
  balance_abs_threshold and max > balance_rel_threshold × min): the least load. Else, if the longest match is more than
  cache_threshold of the prompt: the longest match (equals: the least load); else the least load.
- `power_of_two`, `random`, `round_robin`: as the families of these names.
- `least_load`: tokens / throughput + least_load_kv_pressure_weight × k / (1 - k). tokens: waiting by sample + own since
  then; throughput: least_load_default_throughput; k: KV in use, at most 0.999. Without a sample: own requests ×
  least_load_mean_prefill_tokens / throughput.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from policies.families.family import Family, Knob
from policies.families.params import in_range
from policies.families.power_of_two import kv_usage, own_requests, two_keys
from policies.families.round_robin import turn_keys
from policies.terms import known
from policies.view import RouterView

PolicyName: TypeAlias = Literal["cache_aware", "power_of_two", "random", "round_robin", "least_load"]

MATCH = 2.0**20
"""Worth of one cached token against one request of load: more than any load."""
FULL = 0.999


@dataclass(frozen=True, slots=True)
class Params:
    """Of the gateway's arguments those that choose, by its names."""

    prefill_policy: PolicyName = "cache_aware"
    decode_policy: PolicyName = "cache_aware"
    cache_threshold: float = 0.3
    balance_abs_threshold: float = 64.0
    balance_rel_threshold: float = 1.5
    least_load_kv_pressure_weight: float = 0.15
    least_load_mean_prefill_tokens: float = 1024.0
    least_load_default_throughput: float = 2000.0

    def __post_init__(self) -> None:
        in_range("cache_threshold", self.cache_threshold, 0.0, 1.0)
        in_range("balance_abs_threshold", self.balance_abs_threshold, 0.0)
        in_range("balance_rel_threshold", self.balance_rel_threshold, 1.0)
        in_range("least_load_kv_pressure_weight", self.least_load_kv_pressure_weight, 0.0)
        in_range("least_load_mean_prefill_tokens", self.least_load_mean_prefill_tokens, 1.0)
        in_range("least_load_default_throughput", self.least_load_default_throughput, 1e-9)


def _keys(params: Params, view: RouterView, nodes: Sequence[int], decode: bool) -> list[float]:
    policy = params.decode_policy if decode else params.prefill_policy
    if policy == "cache_aware":
        return _cache_aware(params, view, nodes, decode=decode)
    if policy == "least_load":
        return [_least_load(params, view, at, decode=decode) for at in nodes]
    if policy == "power_of_two":
        return two_keys(view, nodes, decode=decode)
    if policy == "round_robin":
        return turn_keys(view, nodes, decode=decode)
    return [0.0] * len(nodes)


def _cache_aware(params: Params, view: RouterView, nodes: Sequence[int], *, decode: bool) -> list[float]:
    loads = [own_requests(view, at, decode=decode) for at in nodes]
    if not loads:
        return loads
    matched = [float(view.decode[at].resident_tokens if decode else view.prefill[at].hit_tokens) for at in nodes]
    least, most = min(loads), max(loads)
    if most - least > params.balance_abs_threshold and most > params.balance_rel_threshold * least:
        return loads
    if max(matched) / float(view.request.prompt_tokens) > params.cache_threshold:
        return [load - MATCH * match for load, match in zip(loads, matched, strict=True)]
    return loads


def _least_load(params: Params, view: RouterView, at: int, *, decode: bool) -> float:
    tokens = view.decode[at].booked_tokens if decode else known(view.prefill[at].backlog_tokens)
    used = kv_usage(view, at, decode=decode)
    if math.isnan(tokens) or math.isnan(used):
        count = own_requests(view, at, decode=decode)
        return count * params.least_load_mean_prefill_tokens / params.least_load_default_throughput
    used = FULL if used > FULL else 0.0 if used < 0.0 else used
    work = tokens / params.least_load_default_throughput
    return work + params.least_load_kv_pressure_weight * used / (1.0 - used)


FAMILIES = (
    Family(
        "sglang_cache_aware",
        _keys,
        "policies.families.sglang_cache_aware_kernel",
        params=Params,
        knobs=(
            Knob("prefill_policy", 0, 4, (1, 4), names=True),
            Knob("decode_policy", 0, 4, (1, 4), names=True),
            Knob("cache_threshold", 0.0, 1.0, (0.1, 0.6)),
            Knob("balance_abs_threshold", 0.0, 1024.0, (4.0, 16.0)),
            Knob("balance_rel_threshold", 1.0, 8.0, (1.1,)),
        ),
        router="sglang",
    ),
)
