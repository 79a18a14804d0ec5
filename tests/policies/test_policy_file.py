from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import date
from pathlib import Path

import jsonschema
import pytest

from features.errors import PolicyError
from policies.canonical import canonical_bytes
from policies.conformance import check
from policies.policy_file import (
    LEASE_S,
    build,
    content_hash,
    decision_hash,
    estimators_of,
    json_schema,
    parse,
    policy_of,
    to_bytes,
    to_json,
    with_proof,
)
from tests.policies.files import EVIDENCE, small_file, small_origin, small_policy
from tests.policies.views import estimators

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "policy.json"
SCHEMA = ROOT / "data" / "schemas" / "policy.json"
UPDATE = bool(os.environ.get("ROUTECAL_GOLDEN_UPDATE"))
FILE = small_file()
VALUE = to_json(FILE)


def changed(path: tuple, value) -> dict:
    """The file's JSON with one value replaced, or a key added."""
    copy = json.loads(json.dumps(VALUE))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copy


def without(path: tuple) -> dict:
    copy = json.loads(json.dumps(VALUE))
    at = copy
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return copy


def test_golden_file():
    """Bytes and hashes of a whole file: a change here is a change of the published format or of a decision."""
    found = to_bytes(FILE)
    if UPDATE:
        GOLDEN.write_bytes(found)
    assert GOLDEN.read_bytes() == found, "tests/golden/policy.json is old: make golden-update"
    stated = json.loads(found)
    kept = {key: value for key, value in stated.items() if key not in ("content_hash", "decision_hash")}
    assert canonical_bytes(json.loads(found)) == found
    assert FILE.content_hash == content_hash(parse(canonical_bytes(kept)))


def test_golden_schema_is_current():
    found = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if UPDATE:
        SCHEMA.write_text(found, "utf-8")
    assert SCHEMA.read_text("utf-8") == found, "data/schemas/policy.json is old: make golden-update"


def test_schema_accepts_the_file_and_refuses_strangers():
    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(json.loads(to_bytes(FILE)))
    for broken in (changed(("classes", 0, "colour"), 1), without(("router", "horizon_s"))):
        assert not validator.is_valid(broken)


def test_round_trip_is_exact():
    read = parse(to_bytes(FILE))
    assert read == FILE
    assert to_bytes(read) == to_bytes(FILE)
    assert policy_of(read) == replace(small_policy(), lease_s=LEASE_S)  # the pool's, where the policy names none
    assert estimators_of(read) == estimators()


def test_a_file_of_seven_weights_still_decides():
    old = parse((GOLDEN.parent / "policy-2.0.json").read_bytes())
    assert old.schema_version == "2.0"
    assert (old.content_hash, old.decision_hash) == (content_hash(old), decision_hash(old))
    assert [c.weights[7:] for c in policy_of(old).classes] == [(0.0, 0.0)] * len(old.classes)
    assert policy_of(old).decode_moment == "arrival"
    assert check(old) == []


def test_formatting_does_not_change_the_hash():
    pretty = json.dumps(VALUE, indent=3, sort_keys=False).encode()
    assert content_hash(parse(pretty)) == FILE.content_hash


def test_decision_hash_leaves_evidence_and_vectors_out():
    bare = build(small_policy(), estimators(), small_origin())
    proven = with_proof(bare, evidence=EVIDENCE, vectors=[])
    assert bare.decision_hash == proven.decision_hash == FILE.decision_hash
    assert len({bare.content_hash, proven.content_hash, FILE.content_hash}) == 3


@pytest.mark.parametrize(
    "other",
    [
        build(replace(small_policy(), high_water=0.8), estimators(), small_origin()),
        build(small_policy(), replace(estimators(), risk=replace(estimators().risk, ttft=0.3)), small_origin()),
        build(small_policy(), estimators(), small_origin(day=date(2026, 11, 4))),
        build(small_policy(), estimators(), small_origin(code_revision="other")),
        build(small_policy(), estimators(), small_origin(digests={})),
    ],
)
def test_everything_else_is_in_both_hashes(other):
    assert other.decision_hash != FILE.decision_hash
    assert other.decision_hash == decision_hash(other)
    assert other.content_hash != build(small_policy(), estimators(), small_origin()).content_hash


def test_validity_counts_from_the_partition_day():
    assert (FILE.validity.valid_from, FILE.validity.valid_until) == ("2026-11-04T00:00:00Z", "2026-11-11T00:00:00Z")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (changed(("classes", 0, "colour"), 1), r"\$\.classes\[0\]\.colour"),
        (changed(("classes", 0, "weights", "SloRisk"), -1), r"\$\.classes\[0\]\.weights\.SloRisk"),
        (changed(("classes", 1, "quantile"), "0.9"), r"\$\.classes\[1\]\.quantile"),
        (changed(("classes", 1, "quantile"), True), r"\$\.classes\[1\]\.quantile"),
        (changed(("router", "high_water"), 1), r"\$\.router\.high_water"),
        (changed(("risk_tables", "ttft"), [0.0]), r"\$\.risk_tables\.ttft"),
        (changed(("estimators", "prefill", "by_type", "*", "coef"), [1, 2]), r"\$\.estimators\.prefill\.by_type\.\*"),
        (changed(("estimators", "decode", "by_type", "*", "coef"), ["1"]), r"decode\.by_type\.\*\.coef\[0\]"),
        (changed(("estimators", "decode", "by_type", "*", "trees", "left"), [1]), r"arrays of trees.*\$\.estimators"),
        (changed(("estimators", "decode", "by_type", "*", "colour"), 1), r"decode\.by_type\.\*\.colour"),
        (changed(("estimators", "transfer", "wire_frac"), 0), r"\$\.estimators\.transfer\.wire_frac"),
        (changed(("estimators", "length", "limit_tokens"), 2e16), r"2\^53.*\$\.estimators\.length"),
        (changed(("policy_version",), "other/2026-11-03"), r"pool"),
        (changed(("policy_version",), "demo"), r"\$\.policy_version"),
        (changed(("content_hash",), "sha256:12"), r"\$\.content_hash"),
        (changed(("schema_version",), "3.0"), r"\$\.schema_version"),
        (changed(("schema_version",), "1.0"), r"\$\.schema_version.*older form"),
        (changed(("vectors", 0, "view", "request", "tie_seed"), 7), r"tie_seed"),
        (changed(("family",), "fastest"), r"fastest"),
        (without(("router", "horizon_s")), r"\$\.router\.horizon_s.*hint"),
        (without(("classes",)), r"\$\.classes"),
    ],
)
def test_errors_name_the_place(value, place):
    with pytest.raises(PolicyError, match=place):
        parse(json.dumps(value).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"a": NaN}', b"[" * 100_000])
def test_what_is_no_policy_is_refused(data):
    with pytest.raises(PolicyError):
        parse(data)


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        (b'"family":"routecal"', b'"family":"lmetric","family":"routecal"', "stand once"),
        (b'"threshold":0.05', b'"threshold":' + b"9" * 400, "float64"),
        (b'"threshold":0.05', b'"threshold":' + b"9" * 5_000, "float64"),
        (b'"threshold":0.05', b'"threshold":Infinity', "float64"),
        (b'"chunk_tokens":8192,"decode"', b'"chunk_tokens":0,"decode"', "chunk_tokens"),
        (b'"chunk_tokens":8192,"decode"', b'"chunk_tokens":1,"decode"', "65536 chunks"),
    ],
)
def test_what_two_readers_may_take_for_two_things_or_never_end_is_refused(before, after, rule):
    data = to_bytes(FILE)
    if rule.endswith("chunks"):
        data = data.replace(b'"prompt_tokens":', b'"prompt_tokens":9')
    assert before in data
    with pytest.raises(PolicyError, match=rule):
        parse(data.replace(before, after))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_other_encodings_are_refused(encoding):
    with pytest.raises(PolicyError, match="must be JSON"):
        parse(to_bytes(FILE).decode().encode(encoding))
