from __future__ import annotations

import base64
import json
from datetime import date

import pytest

from features.errors import PolicyError
from policies.policy_file import parse, to_bytes, to_json
from policies.signing import PAYLOAD_TYPE, generate_key, key_id, load_private, load_public, pae, sign, verify
from tests.policies.files import small_file

PRIVATE_PEM, PUBLIC_PEM = generate_key()
PRIVATE, PUBLIC = load_private(PRIVATE_PEM), load_public(PUBLIC_PEM)
STRANGER = load_public(generate_key()[1])
FILE = small_file(n_vectors=1)
SIGNED = sign(FILE, PRIVATE, issued_at="2026-11-04T03:12:00Z", mlflow_run="run", test_openings=2)


def tampered(change) -> object:
    value = json.loads(to_bytes(SIGNED))
    change(value)
    return parse(json.dumps(value).encode())


def test_pae_is_that_of_dsse():
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_trusted():
    found = verify(parse(to_bytes(SIGNED)), (STRANGER, PUBLIC))
    assert (found.state, found.signed_by) == ("trusted", (key_id(PUBLIC),))
    assert found.statement == {
        "content_hash": FILE.content_hash,
        "decision_hash": FILE.decision_hash,
        "issued_at": "2026-11-04T03:12:00Z",
        "mlflow_run": "run",
        "test_openings": 2,
    }


def test_signing_does_not_change_the_hashes():
    again = sign(FILE, PRIVATE, issued_at="2026-12-24T00:00:00Z", mlflow_run=None, test_openings=0)
    assert (again.content_hash, again.decision_hash) == (FILE.content_hash, FILE.decision_hash)


def test_unsigned():
    assert verify(FILE, (PUBLIC,)).state == "unsigned"


def test_untrusted():
    found = verify(SIGNED, (STRANGER,))
    assert (found.state, found.signed_by) == ("untrusted", ())
    assert key_id(PUBLIC) in found.reason
    assert "no trusted key was given" in verify(SIGNED, ()).reason


def swap_statement(value):
    payload = json.loads(base64.b64decode(value["envelope"]["payload"]))
    payload["test_openings"] = 0
    value["envelope"]["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()


def swap_content(value):
    value["classes"][0]["weights"]["SloRisk"] = 3


def swap_content_and_hash(value):
    swap_content(value)
    del value["content_hash"], value["decision_hash"]


@pytest.mark.parametrize(
    "change",
    [
        swap_content,
        swap_content_and_hash,
        swap_statement,
        lambda value: value.update(content_hash="sha256:" + "0" * 64),
        lambda value: value["envelope"]["signatures"][0].update(sig=base64.b64encode(b"0" * 64).decode()),
        lambda value: value["envelope"]["signatures"][0].update(sig="no base64!"),
        lambda value: value["envelope"].update(payload="no base64!"),
        lambda value: value["envelope"].update(payload=base64.b64encode(b"[]").decode()),
        lambda value: value["envelope"].update(payloadType="text/plain"),
        lambda value: value.update(evidence=None),
    ],
)
def test_tampered(change):
    assert verify(tampered(change), (PUBLIC,)).state == "tampered"


def test_a_file_changed_by_hand_is_not_signed():
    other = FILE.model_copy(update={"validity": small_file(n_vectors=1, day=date(2026, 11, 9)).validity})
    with pytest.raises(PolicyError, match="content_hash"):
        sign(other, PRIVATE, issued_at="2026-11-04T03:12:00Z", mlflow_run=None, test_openings=0)


def test_keys_of_the_wrong_kind():
    with pytest.raises(PolicyError, match="PEM"):
        load_private(PUBLIC_PEM)
    with pytest.raises(PolicyError, match="PEM"):
        load_public(b"nonsense")


def test_the_envelope_is_an_ed25519_dsse_envelope():
    envelope = to_json(SIGNED)["envelope"]
    message = pae(PAYLOAD_TYPE, base64.b64decode(envelope["payload"]))
    PUBLIC.verify(base64.b64decode(envelope["signatures"][0]["sig"]), message)
