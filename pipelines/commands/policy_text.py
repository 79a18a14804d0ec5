"""A policy file as people read it: what it does, for whom, and how sure one is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from policies.policy_models import ClassModel, Evidence, PolicyFile, Reference

LABEL_WIDTH = 13


def policy_lines(file: PolicyFile) -> list[str]:
    """Lines of a label and a text each; a text without label goes on with the line above it."""
    facts = [*_facts(file), *(line for each in file.classes for line in _class(each)), *_evidence(file.evidence)]
    return [f"{label:<{LABEL_WIDTH}}{text}" for label, text in facts]


def _facts(file: PolicyFile) -> Iterator[tuple[str, str]]:
    pool, inputs = file.compatibility, file.inputs
    kv = f"{pool.kv_bytes_per_token:,} B of KV a token"
    yield "policy", f"{file.policy_version}, family {file.family}"
    yield "content", str(file.content_hash)
    yield "decision", str(file.decision_hash)
    yield "valid", f"{file.validity.valid_from} until {file.validity.valid_until}"
    yield "pool", f"{pool.model}, engine {pool.engine}, blocks of {pool.block_tokens} tokens, {kv}"
    yield "against", f"{_reference(file.incumbent)}; falls back on {_reference(file.fallback)}"
    yield "made from", f"{len(inputs.digests)} inputs, code {inputs.code_revision}, {inputs.capability_level}"
    yield "signatures", f"{len(file.envelope.signatures) if file.envelope else 0}; `routecal policy verify` checks them"
    yield "vectors", str(len(file.vectors))


def _class(each: ClassModel) -> Iterator[tuple[str, str]]:
    targets = f"TTFT <= {_ms(each.ttft_target_s)}, TPOT <= {_ms(each.tpot_target_s)}"
    yield "class", f"{each.name}: {targets}, books q{each.quantile:g}, {each.reserve_blocks:g} blocks stay free"
    yield "", ", ".join(f"{name} {value:g}" for name, value in each.weights.model_dump().items())


def _evidence(evidence: Evidence | None) -> Iterator[tuple[str, str]]:
    if evidence is None:
        yield "verdict", "none: the file carries no evidence"
        return
    yield "verdict", f"{evidence.verdict}, promotion ends at {evidence.promotion_cap}"
    yield "", evidence.reason
    for gate in _gates(evidence.details):
        yield "gate", f"{gate.get('name')}: {gate.get('status')}; {gate.get('detail')}"


def _gates(details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    gates = details.get("gates")
    return [gate for gate in gates if isinstance(gate, dict)] if isinstance(gates, list) else []


def _reference(reference: Reference | None) -> str:
    return "nothing" if reference is None else f"{reference.family} ({reference.policy_version or 'as declared'})"


def _ms(seconds: float | None) -> str:
    return "any" if seconds is None else f"{seconds * 1000:g} ms"
