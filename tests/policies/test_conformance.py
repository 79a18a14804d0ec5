"""Vectors cover the rules that they promise, and both forms of the decision reproduce them."""

from __future__ import annotations

from collections import Counter

import pytest

from policies.conformance import check, vector_policy, vectors
from policies.families.registry import FAMILIES, SIMPLE
from policies.policy_file import estimators_of, parse, policy_of, sealed, to_bytes, to_json, with_proof
from policies.scoring import DECODE_RULES, PREFILL_RULES
from policies.vector_models import view_from_model
from tests.policies.files import GEOMETRY, small_file, small_policy
from tests.policies.views import estimators, run_kernel, same_bits

FILE = parse(to_bytes(small_file(n_vectors=None)))
CAPACITY = ("routecal", "gated_utilisation", "lmetric")


def of(family: str):
    return [vector for vector in FILE.vectors if vector.rules.family == family]


def test_vectors_are_deterministic():
    again = vectors(small_policy(), estimators(), GEOMETRY)
    assert again == vectors(small_policy(), estimators(), GEOMETRY)
    names = [vector["name"] for vector in again]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("family", SIMPLE)
def test_coverage(family):
    found = of(family)
    assert len(found) >= 20
    covers = Counter(rule for vector in found for rule in vector.covers)
    for rule in ("tie", "unknown_worst", "unknown_exclude", "when_full_queue", "when_full_reject", "refused"):
        assert covers[rule], rule
    # What removed a candidate, as it came out, not as a name promises.
    removed = {exclusion.rule for vector in found for exclusion in vector.expected.excluded}
    assert set(PREFILL_RULES) <= removed
    assert set(DECODE_RULES) - {"decode_full"} <= removed
    assert any(vector.expected.prefill is None for vector in found)
    if family == "routecal":
        assert all(covers[rule] for rule in ("node_type", "bends", "trees", "prompts", "port_factor", "descriptors"))
    if family in CAPACITY:
        assert "decode_full" in removed
        assert any(vector.expected.capacity_dropped for vector in found)
    if family != "round_robin":
        assert "unknown" in removed


def test_ties_are_ties():
    for vector in FILE.vectors:
        if "tie" not in vector.covers:
            continue
        if vector.rules.family == "routecal":
            assert len({pair.score for pair in vector.expected.pairs}) == 1
        elif vector.rules.family != "round_robin":
            assert len(set(vector.expected.prefill_keys)) == len(set(vector.expected.decode_keys)) == 1


def test_an_unknown_term_is_null_in_some_vector():
    assert any(None in pair.terms for vector in of("routecal") for pair in vector.expected.pairs)


def test_the_plain_decision_conforms():
    assert check(FILE) == []


def test_a_wrong_vector_is_found():
    value = to_json(FILE)
    value["vectors"][0]["expected"]["pairs"][1]["score"] += 1e-9
    value["vectors"][1]["expected"]["decode"] = 2 - value["vectors"][1]["expected"]["decode"] // 2
    found = [(failure.vector, failure.field) for failure in check(sealed(value))]
    assert (FILE.vectors[0].name, "pairs") in found
    assert len({vector for vector, _ in found}) in (1, 2)


@pytest.mark.parametrize(
    ("family", "side", "column", "value"),
    [
        ("routecal", "prefill", "port_bytes_per_s", 0.0),
        ("routecal", "decode", "receiving_requests", -1.0),
    ],
)
def test_a_view_that_cannot_be_decided_is_a_failure(family, side, column, value):
    held = to_json(FILE)
    vector = next(v for v in held["vectors"] if v["name"] == f"{family}/plain")
    for node in vector["view"][side]:
        node[column] = value
    assert (vector["name"], "view") in [(failure.vector, failure.field) for failure in check(sealed(held))]


@pytest.mark.parametrize("family", SIMPLE)
def test_the_compiled_decision_conforms(family):
    policy, laws = policy_of(FILE), estimators_of(FILE)
    for vector in of(family):
        view, expected = view_from_model(vector.view), vector.expected
        chosen, scratch = run_kernel(vector_policy(policy, vector), laws, view)
        wanted = -1 if expected.prefill is None else expected.prefill * len(view.decode) + expected.decode
        assert chosen == wanted, vector.name
        for pair in expected.pairs:
            at = (pair.prefill, pair.decode)
            assert same_bits(pair.score, scratch.scores[at]), vector.name
            assert same_bits(pair.ttft_s, scratch.predicted_ttft_s[at]), vector.name
            assert same_bits(pair.tpot_s, scratch.predicted_tpot_s[at]), vector.name
            assert all(same_bits(pair.terms[k], scratch.terms[at][k]) for k in range(7)), vector.name


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in SIMPLE])
def test_vectors_of_a_router_of_a_certain_make(family):
    policy, laws = small_policy(), estimators()
    file = with_proof(FILE, evidence=None, vectors=vectors(policy, laws, GEOMETRY, families=(family,)))
    assert len(file.vectors) >= 20
    assert check(file) == []
    for vector in file.vectors:
        view, expected = view_from_model(vector.view), vector.expected
        chosen, _ = run_kernel(vector_policy(policy, vector), laws, view)
        wanted = -1 if expected.prefill is None else expected.prefill * len(view.decode) + expected.decode
        assert chosen == wanted, vector.name
