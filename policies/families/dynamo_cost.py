"""`dynamo_cost`: the default cost function of NVIDIA Dynamo's KV router (1.6), for P and for D. docs/adr/0011.

Costs are in blocks. P: prefill_load_scale × max(0, (tokens of own prompts not computed + prompt) / block - credit)
+ decode_active_request_weight × those prompts. credit = overlap_score_credit × blocks that P has cached; where P has
more of own prompts than the emptiest P, the credit is divided by 1 + decay × excess blocks / prompt blocks. D: full
prompt blocks of own requests + new ones of this prompt + decode_active_request_weight × own requests; the router sets
D's overlap credit to 0. With a temperature the choice is a draw from the softmax of -cost / (range × temperature).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from policies.draws import GUMBEL, node_draw
from policies.families.family import Family, Knob
from policies.families.params import in_range
from policies.terms import blocks_of, known
from policies.view import RouterView


@dataclass(frozen=True, slots=True)
class CostFn:
    """Parameters of one `dynamo-default-cost-fn`, by Dynamo's names. The pool has one tier, so that host and disk
    weights are carried and change nothing.
    """

    overlap_score_credit: float = 1.0
    overlap_score_credit_decay: float = 0.0
    prefill_load_scale: float = 1.0
    decode_active_request_weight: float = 0.0
    host_cache_hit_weight: float = 0.75
    disk_cache_hit_weight: float = 0.25
    router_temperature: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            in_range(each.name, getattr(self, each.name), 0.0)


@dataclass(frozen=True, slots=True)
class Params:
    """One cost function a side. `assume_kv_reuse`: a block that several own requests on a D have counts there once; the
    router sets it to false where P and D are apart.
    """

    prefill: CostFn = field(default_factory=CostFn)
    decode: CostFn = field(default_factory=CostFn)
    assume_kv_reuse: bool = False


def _keys(params: Params, view: RouterView, nodes: Sequence[int], decode: bool) -> list[float]:
    own = params.decode if decode else params.prefill
    costs = _decode_costs(own, view, nodes) if decode else _prefill_costs(own, view, nodes)
    if own.router_temperature == 0.0:
        return costs
    found = [cost for cost in costs if not math.isnan(cost)]
    low, high = (min(found), max(found)) if found else (0.0, 0.0)
    keys = []
    for at, cost in zip(nodes, costs, strict=True):
        share = (cost - low) / (high - low) if high > low else cost - low
        noise = GUMBEL[node_draw(view.request.tie_seed, at, decode=decode)]
        keys.append(share - own.router_temperature * noise)
    return keys


def _prefill_costs(own: CostFn, view: RouterView, nodes: Sequence[int]) -> list[float]:
    block, prompt = float(view.block_tokens), float(view.request.prompt_tokens)
    blocks = float(blocks_of(view.request.prompt_tokens, view.block_tokens))
    least = min((view.prefill[i].own_tokens for i in nodes), default=0.0)
    costs = []
    for p in (view.prefill[i] for i in nodes):
        credit = own.overlap_score_credit
        if own.overlap_score_credit_decay > 0.0:
            excess = (p.own_tokens - least) / block / blocks
            credit = credit * (1.0 / (1.0 + own.overlap_score_credit_decay * excess))
        left = (p.own_tokens + prompt) / block - credit * (float(p.hit_tokens) / block)
        left = 0.0 if left < 0.0 else left
        costs.append(own.prefill_load_scale * left + own.decode_active_request_weight * p.own_prompts)
    return costs


def _decode_costs(own: CostFn, view: RouterView, nodes: Sequence[int]) -> list[float]:
    costs = []
    for d in (view.decode[j] for j in nodes):
        blocks = known(d.own_blocks) + known(d.new_blocks)
        costs.append(blocks + own.decode_active_request_weight * d.own_requests)
    return costs


FAMILIES = (
    Family(
        "dynamo_cost",
        _keys,
        "policies.families.dynamo_cost_kernel",
        params=Params,
        shares_blocks=lambda params: params.assume_kv_reuse,
        knobs=(
            Knob("prefill.overlap_score_credit", 0.0, 4.0, (0.0, 0.5, 2.0)),
            Knob("prefill.overlap_score_credit_decay", 0.0, 4.0, (0.25, 1.0)),
            Knob("prefill.router_temperature", 0.0, 1.0, (0.1,)),
            Knob("decode.decode_active_request_weight", 0.0, 64.0, (1.0, 8.0)),
        ),
        moment="handoff",
        router="dynamo",
    ),
)
