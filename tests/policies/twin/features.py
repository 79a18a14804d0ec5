"""Which rules of the twin a scenario has on: every setting that is not at its default, a word with its value."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import get_args, get_type_hints

from policies.policy import ClassPolicy, Policy
from policies.twin.cluster import Discipline, RouterSetup
from policies.twin.workload import Workload
from tests.policies.twin.scenario import Scenario

NOT_A_RULE = {
    "chunk_tokens",
    "prefill_max_seqs",
    "decode_max_seqs",
    "risk_ttft",
    "risk_tpot",
    "request_ids",
    "objective",
}

KINDS = {
    "discipline": Discipline,
    "routers": RouterSetup,
    "policy": Policy,
    "workload": Workload,
    "class": ClassPolicy,
}


def features_of(scenario: Scenario) -> frozenset[str]:
    """Names of what is on."""
    cluster = scenario.cluster
    found = {f"policy.family={scenario.policy.family}"}
    for part, value in (
        ("discipline", cluster.discipline),
        ("routers", cluster.routers),
        ("policy", scenario.policy),
        ("workload", scenario.workload),
        *(("class", one) for one in scenario.policy.classes),
    ):
        found |= _changed(part, value)
    found |= {name for name, on in _beside(scenario).items() if on}
    return frozenset(found)


def rules() -> set[str]:
    """Names that `features_of` can yield for settings; a word's other values are `name=value`."""
    found = set()
    for part, kind in KINDS.items():
        for field in fields(kind):  # type: ignore[arg-type]
            known = field.default is not MISSING or field.default_factory is not MISSING
            if known and field.name not in NOT_A_RULE:
                found |= _names(part, field)
    return found


def _names(part: str, field: Field) -> set[str]:
    choices = get_args(get_type_hints(KINDS[part])[field.name])
    if isinstance(_default(field), str) and choices:
        return {f"{part}.{field.name}={choice}" for choice in choices if choice != _default(field)}
    return {f"{part}.{field.name}"}


def _beside(scenario: Scenario) -> dict[str, bool]:
    transfer = scenario.laws.transfer
    return {
        "noise": scenario.noise is not None,
        "believed laws": scenario.decision_laws is not None,
        "fixed estimates": scenario.estimated_output is not None,
        "forced placement": bool((scenario.workload.forced_prefill >= 0).any()),
        "uplinks": bool(scenario.cluster.uplinks),
        "caches": bool(scenario.laws.cache),
        "wire": transfer.wire_frac != 1.0,
        "descriptors": transfer.descriptor_s * transfer.descriptors_per_block > 0,
        "alpha": max(transfer.alpha_s.values()) > 0,
        "overlap": transfer.overlap_frac > 0,
        "handshake": transfer.handshake_s > 0,
        "cache ttl": any(law.ttl_s is not None for law in scenario.laws.cache.values()),
    }


def _changed(part: str, value: object) -> set[str]:
    names = set()
    for field in fields(KINDS[part]):  # type: ignore[arg-type]
        known = field.default is not MISSING or field.default_factory is not MISSING
        if field.name in NOT_A_RULE or not known:
            continue
        found = getattr(value, field.name)
        if found is _default(field) or _same(found, _default(field)):
            continue
        names.add(f"{part}.{field.name}={found}" if isinstance(found, str) else f"{part}.{field.name}")
    return names


def _default(field: Field) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _same(found: object, default: object) -> bool:
    return isinstance(found, str | int | float | tuple | bool | type(None)) and found == default
