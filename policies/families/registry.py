"""The router algorithms by name, and their plain decision. No arrays here: a router decides without numpy."""

from __future__ import annotations

from features.errors import PolicyError
from models.portable.estimators import Estimators
from policies.families.apart import Keys, decide_apart
from policies.families.lmetric import lmetric_keys
from policies.families.round_robin import round_robin_keys
from policies.families.routecal import decide_pair
from policies.families.utilisation import utilisation_keys
from policies.policy import Policy
from policies.scoring import Decision
from policies.view import RouterView

FAMILIES = ("routecal", "lowest_utilisation", "gated_utilisation", "lmetric", "round_robin")
"""In the order of the kernel: a family's place is its number there."""

APART: dict[str, Keys] = {
    "lowest_utilisation": utilisation_keys,
    "gated_utilisation": utilisation_keys,
    "lmetric": lmetric_keys,
    "round_robin": round_robin_keys,
}
"""Families that choose P and D by a key each."""

CAPACITY = frozenset({"routecal", "gated_utilisation", "lmetric"})
"""Families whose D must have room."""


def decide(policy: Policy, estimators: Estimators, view: RouterView) -> Decision:
    """The policy's decision for one view, in plain Python. PolicyError if the family or the class does not exist."""
    check_family(policy.family)
    if not 0 <= view.request.class_index < len(policy.classes):
        raise PolicyError("`class_index` must name a class of the policy", value=view.request.class_index)
    if policy.family == "routecal":
        return decide_pair(policy, estimators, view)
    return decide_apart(policy, view, APART[policy.family], capacity=policy.family in CAPACITY)


def check_family(name: str) -> None:
    """PolicyError if there is no such family."""
    if name not in FAMILIES:
        raise PolicyError("a family must be one that exists", value=name, hint=f"one of {', '.join(FAMILIES)}")
