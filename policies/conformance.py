"""Conformance vectors: decisions that every router must reproduce, bit for bit, from one view each."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

from models.portable.estimators import Estimators
from policies.canonical import Json
from policies.conformance_cases import cases
from policies.conformance_views import Geometry
from policies.families.registry import SIMPLE, decide
from policies.policy import Policy
from policies.policy_file import estimators_of, policy_of
from policies.policy_models import JsonObject, PolicyFile
from policies.scoring import Decision
from policies.vector_models import VectorModel, view_from_model, view_to_json

RULES = (
    "family",
    "unknown",
    "when_full",
    "same_rack",
    "temperature_p_s",
    "temperature_d_s",
    "decode_moment",
    "draws_p",
    "draws_d",
    "hysteresis_s",
)
"""Fields of a policy that a vector sets itself."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A vector that the decision does not reproduce."""

    vector: str
    field: str
    expected: object
    found: object


def vectors(
    policy: Policy, estimators: Estimators, geometry: Geometry, *, families: tuple[str, ...] = SIMPLE
) -> list[JsonObject]:
    """At least 20 vectors a family in JSON form, the same for the same input. Node names are those of the laws."""
    made = []
    for family in families:
        for case in cases(policy, estimators, geometry, family):
            changed = _under(policy, {"family": family} | case.rules)
            made.append(
                {
                    "name": f"{family}/{case.name}",
                    "covers": list(case.covers),
                    "rules": {field: getattr(changed, field) for field in RULES},
                    "view": view_to_json(case.view),
                    "expected": decision_to_json(decide(changed, estimators, case.view)),
                }
            )
    return made


def check(file: PolicyFile) -> list[Failure]:
    """Decide every vector of a file again; failures in the file's order, none = it conforms."""
    policy, estimators = policy_of(file), estimators_of(file)
    failures: list[Failure] = []
    for vector in file.vectors:
        try:
            decision = decide(vector_policy(policy, vector), estimators, view_from_model(vector.view))
        except ArithmeticError as error:  # a node without blocks, a link without bandwidth
            failures.append(Failure(vector.name, "view", "one that can be decided", str(error)))
            continue
        found = decision_to_json(decision)
        expected = vector.expected.model_dump(mode="json")
        for made, stated in zip(found["pairs"], expected["pairs"], strict=False):
            made["terms"] = made["terms"][: len(stated["terms"])]  # an older vector has fewer
        failures += [
            Failure(vector.name, field, expected[field], found[field])
            for field in expected
            if not _equal(expected[field], found[field])
        ]
    return failures


def vector_policy(policy: Policy, vector: VectorModel) -> Policy:
    """The file's policy under the rules of one vector."""
    return _under(policy, vector.rules.model_dump())


def _under(policy: Policy, rules: dict[str, Any]) -> Policy:
    """The policy under other rules; another family decides with its default parameters."""
    own = policy.params if rules["family"] == policy.family else ()
    return replace(policy, params=own, **rules)


def decision_to_json(decision: Decision) -> JsonObject:
    """A decision as a vector expects it."""
    made: dict[str, Any] = dataclasses.asdict(decision)
    made["pairs"] = [candidate | {"terms": list(candidate["terms"])} for candidate in made.pop("candidates")]
    made["prefill_keys"] = list(decision.prefill_keys)
    made["decode_keys"] = list(decision.decode_keys)
    made["excluded"] = [
        {"prefill": None if i < 0 else i, "decode": None if j < 0 else j, "rule": rule}
        for i, j, rule in decision.excluded
    ]
    return made


def _equal(expected: Json, found: Json) -> bool:
    """Equal values; numbers by value (JSON writes 1.0 as 1)."""
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_equal, expected, found))
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(_equal(expected[key], found[key]) for key in expected)
    if isinstance(expected, bool) or isinstance(found, bool) or expected is None or found is None:
        return expected is found
    return bool(expected == found)
