"""`hit_capacity_health`: hit ratio, free capacity and health of a node in one weighted sum. docs/adr/0011 says how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.families.family import Family, Knob
from policies.families.params import in_range
from policies.terms import known
from policies.view import DecodeView, PrefillView, RouterView


@dataclass(frozen=True, slots=True)
class Params:
    """Weights of the three ratios. `stale_after_s`: age at which a node's sample says nothing of its health."""

    hit: float = 0.5
    free: float = 0.3
    health: float = 0.2
    stale_after_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("hit", "free", "health"):
            in_range(name, getattr(self, name), 0.0)
        in_range("stale_after_s", self.stale_after_s, 1e-9)


def _keys(params: Params, view: RouterView, nodes: Sequence[int], decode: bool) -> list[float]:
    """Minus the score."""
    prompt = float(view.request.prompt_tokens)
    keys = []
    for at in nodes:
        node = view.decode[at] if decode else view.prefill[at]
        cached = view.decode[at].resident_tokens if decode else view.prefill[at].hit_tokens
        fresh = 1.0 - known(node.age_s) / params.stale_after_s
        fresh = 0.0 if fresh < 0.0 else fresh
        score = params.hit * (float(cached) / prompt) + params.free * _free(node) + params.health * fresh
        keys.append(-score)
    return keys


def _free(node: PrefillView | DecodeView) -> float:
    if isinstance(node, PrefillView):
        return known(node.available_blocks) / float(node.total_blocks)
    committed = known(node.active_blocks) + known(node.reserved_blocks) + known(node.inflight_blocks)
    free = (node.usable_blocks - (committed + node.booked_blocks)) / node.usable_blocks
    return 0.0 if free < 0.0 else free


FAMILIES = (
    Family(
        "hit_capacity_health",
        _keys,
        "policies.families.hit_capacity_health_kernel",
        params=Params,
        knobs=(Knob("hit", 0.0, 2.0, (0.0, 0.25, 1.0)), Knob("free", 0.0, 2.0, (0.1, 1.0))),
    ),
)
