"""`llm_d_scorers`: the llm-d endpoint picker, one scheduling profile for P and one for D. docs/adr/0011.

total = Σ weight × clamp(score, 0, 1) over the profile's scorers, each as llm-d-router of August 2026 has it:

- `queue-scorer`, `running-requests-size-scorer`: (max - n) / (max - min) of sampled waiting or running requests, 1 if
  all are equal.
- `kv-cache-utilization-scorer`: 1 - used fraction.
- `load-aware-scorer`: 0.5 × (1 - min(waiting, threshold) / threshold).
- `active-request-scorer`: own requests n: 1 if n <= idleThreshold, else (max - n) / max × maxBusyScore.
- `prefix-cache-scorer`: matchLengthWeight × min(1, matched tokens / matchLengthScaleTokens) + (1 - matchLengthWeight) ×
  matched blocks / the prompt's full blocks (0 if it has none).

`max-score-picker` takes the largest total, `random-picker` any, `weighted-random-picker` one with odds of its total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from policies.draws import EXPONENTIAL, node_draw
from policies.families.family import Family, Knob
from policies.families.params import in_range
from policies.families.power_of_two import kv_usage, own_requests
from policies.terms import known
from policies.view import DecodeView, PrefillView, RouterView

Picker: TypeAlias = Literal["max-score-picker", "random-picker", "weighted-random-picker"]

WEIGHTS = ("queue", "running", "kv_cache_utilization", "load_aware", "active_request", "prefix_cache")
NEVER = 1e300
"""Key of an endpoint of total 0 under the weighted picker."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Weights of the scorers (0 = the profile has no such scorer), their parameters, the picker."""

    queue: float = 2.0
    running: float = 0.0
    kv_cache_utilization: float = 2.0
    load_aware: float = 0.0
    active_request: float = 0.0
    prefix_cache: float = 3.0
    threshold: float = 128.0
    idle_threshold: float = 0.0
    max_busy_score: float = 1.0
    match_length_weight: float = 0.0
    match_length_scale_tokens: float = 8192.0
    picker: Picker = "max-score-picker"

    def __post_init__(self) -> None:
        for name in WEIGHTS:
            in_range(name, getattr(self, name), 0.0)
        in_range("threshold", self.threshold, 1.0)
        in_range("idle_threshold", self.idle_threshold, 0.0)
        in_range("max_busy_score", self.max_busy_score, 0.0, 1.0)
        in_range("match_length_weight", self.match_length_weight, 0.0, 1.0)
        in_range("match_length_scale_tokens", self.match_length_scale_tokens, 1.0)


@dataclass(frozen=True, slots=True)
class Params:
    """One profile a side."""

    prefill: Profile = field(default_factory=Profile)
    decode: Profile = field(default_factory=Profile)


def _keys(params: Params, view: RouterView, nodes: Sequence[int], decode: bool) -> list[float]:
    profile = params.decode if decode else params.prefill
    if profile.picker == "random-picker":
        return [0.0] * len(nodes)
    totals = _totals(profile, view, nodes, decode=decode)
    if profile.picker == "max-score-picker":
        return [-total for total in totals]
    keys = []
    for at, total in zip(nodes, totals, strict=True):
        waiting = EXPONENTIAL[node_draw(view.request.tie_seed, at, decode=decode)]
        keys.append(NEVER if total == 0.0 else waiting / total)
    return keys


def _totals(profile: Profile, view: RouterView, nodes: Sequence[int], *, decode: bool) -> list[float]:
    waiting = [known(_node(view, at, decode).waiting_requests) for at in nodes]
    running = [known(_node(view, at, decode).running_requests) for at in nodes]
    own = [own_requests(view, at, decode=decode) for at in nodes]
    most = max(own, default=0.0)
    scores = {
        "queue": _spread(waiting),
        "running": _spread(running),
        "kv_cache_utilization": [1.0 - kv_usage(view, at, decode=decode) for at in nodes],
        "load_aware": [0.5 * (1.0 - _at_most(n, profile.threshold) / profile.threshold) for n in waiting],
        "active_request": [
            1.0 if n <= profile.idle_threshold else (most - n) / most * profile.max_busy_score for n in own
        ],
        "prefix_cache": [_prefix(profile, view, at, decode=decode) for at in nodes],
    }
    totals = [0.0] * len(nodes)
    for name in WEIGHTS:
        weight = getattr(profile, name)
        if weight != 0.0:
            totals = [total + weight * _clamped(s) for total, s in zip(totals, scores[name], strict=True)]
    return totals


def _node(view: RouterView, at: int, decode: bool) -> PrefillView | DecodeView:
    return view.decode[at] if decode else view.prefill[at]


def _spread(values: list[float]) -> list[float]:
    found = [value for value in values if not math.isnan(value)]
    low, high = (min(found), max(found)) if found else (0.0, 0.0)
    return [(high - v) / (high - low) if high > low else 1.0 + 0.0 * v for v in values]


def _prefix(profile: Profile, view: RouterView, at: int, *, decode: bool) -> float:
    matched = view.decode[at].resident_tokens if decode else view.prefill[at].hit_tokens
    full = view.request.prompt_tokens // view.block_tokens
    ratio = float(matched // view.block_tokens) / float(full) if full > 0 else 0.0
    length = _at_most(float(matched) / profile.match_length_scale_tokens, 1.0)
    return profile.match_length_weight * length + (1.0 - profile.match_length_weight) * ratio


def _at_most(value: float, bound: float) -> float:
    return bound if value > bound else value


def _clamped(score: float) -> float:
    return 0.0 if score < 0.0 else _at_most(score, 1.0)


FAMILIES = (
    Family(
        "llm_d_scorers",
        _keys,
        "policies.families.llm_d_scorers_kernel",
        params=Params,
        knobs=(
            Knob("prefill.queue", 0.0, 10.0, (0.0, 1.0, 4.0)),
            Knob("prefill.prefix_cache", 0.0, 10.0, (0.0, 1.0, 6.0)),
            Knob("prefill.active_request", 0.0, 10.0, (2.0,)),
            Knob("decode.queue", 0.0, 10.0, (0.0, 1.0, 4.0)),
            Knob("decode.kv_cache_utilization", 0.0, 10.0, (0.0, 1.0, 4.0)),
            Knob("decode.active_request", 0.0, 10.0, (2.0,)),
        ),
        moment="decode_first",
        router="llm-d",
    ),
)
