"""The router algorithms by name, and their plain decision. No arrays here: a router decides without numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from features.errors import PolicyError
from models.portable.estimators import Estimators
from policies.families import (
    dynamo_cost,
    hit_capacity_health,
    least_request,
    llm_d_scorers,
    lmetric,
    power_of_two,
    random_choice,
    round_robin,
    sglang_cache_aware,
    utilisation,
)
from policies.families.apart import decide_apart
from policies.families.family import Family
from policies.families.params import NoParams, Row, Value, from_json, from_row, to_json, to_row
from policies.families.routecal import decide_pair
from policies.narrowing import narrowed
from policies.policy import DecodeMoment, Policy
from policies.scoring import Decision
from policies.view import RouterView

PAIRS = "routecal"
"""The one family that scores pairs."""

MODULES = (
    utilisation,
    lmetric,
    round_robin,
    hit_capacity_health,
    random_choice,
    least_request,
    power_of_two,
    sglang_cache_aware,
    dynamo_cost,
    llm_d_scorers,
)
"""In the order of the families' numbers, behind `routecal`."""

APART: tuple[Family, ...] = tuple(family for module in MODULES for family in module.FAMILIES)
"""Families that choose P and D by a key each."""

BY_NAME = {family.name: family for family in APART}
FAMILIES = (PAIRS, *BY_NAME)
SIMPLE = (PAIRS, "lowest_utilisation", "gated_utilisation", "lmetric", "round_robin")
"""What a pool's router can run if its settings do not say: rules that need no router of a certain make."""


def moment_of(family: str) -> DecodeMoment:
    """When the family's router chooses D."""
    return BY_NAME[family].moment if family in BY_NAME else "arrival"


def decide(policy: Policy, estimators: Estimators, view: RouterView) -> Decision:
    """The policy's decision for one view, in plain Python. PolicyError if the family or the class does not exist."""
    check_family(policy.family)
    if not 0 <= view.request.class_index < len(policy.classes):
        raise PolicyError("`class_index` must name a class of the policy", value=view.request.class_index)
    view, closed = narrowed(policy, view)
    if policy.family == PAIRS:
        decision = decide_pair(policy, estimators, view)
    else:
        family = BY_NAME[policy.family]
        decision = decide_apart(policy, view, family, params_of(policy.family, policy.params))
    excluded = [(i, j, closed.get((i, j), rule)) for i, j, rule in decision.excluded]
    return replace(decision, excluded=tuple(excluded))


def check_family(name: str) -> None:
    """PolicyError if there is no such family."""
    if name not in FAMILIES:
        raise PolicyError("a family must be one that exists", value=name, hint=f"one of {', '.join(FAMILIES)}")


@cache
def params_of(family: str, row: Row) -> Any:  # noqa: ANN401  # of the family's own dataclass
    """The family's parameters; () = its defaults. PolicyError if the family refuses them."""
    kind = _kind(family)
    return from_row(kind, row) if row else kind()


def params_json(policy: Policy) -> dict[str, Value]:
    """The family's parameters as the policy file carries them."""
    return to_json(params_of(policy.family, policy.params))


def params_row(family: str, values: Mapping[str, object]) -> Row:
    """Parameters of a policy file as the numbers of a policy. PolicyError if they are not the family's."""
    check_family(family)
    return to_row(from_json(_kind(family), values))


def capacity(family: str) -> bool:
    """Whether D must have room."""
    return family == PAIRS or BY_NAME[family].capacity


def shares_blocks(policy: Policy) -> bool:
    """Whether the policy's router counts a prompt block of several own requests on a D once."""
    if policy.family == PAIRS:
        return False
    return BY_NAME[policy.family].shares_blocks(params_of(policy.family, policy.params))


def _kind(family: str) -> type:
    return NoParams if family == PAIRS else BY_NAME[family].params
