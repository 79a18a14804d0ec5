"""Signatures of policy files: a DSSE envelope with Ed25519 around a statement of the file's hashes.

The statement holds what lies outside the hash: when the file was issued, the MLflow run, how often the test day had
been opened. It is signed with the hashes, so none of it can be exchanged unseen.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from features.errors import PolicyError
from policies.canonical import canonical_bytes
from policies.policy_file import content_hash, decision_hash
from policies.policy_models import Envelope, PolicyFile, Signature

PAYLOAD_TYPE = "application/vnd.routecal.policy-statement+json"

State: TypeAlias = Literal["trusted", "unsigned", "untrusted", "tampered"]


@dataclass(frozen=True, slots=True)
class Verification:
    """What the signatures of a file are worth.

    `trusted`: content and statement are as a trusted key signed them. `unsigned`: no signature. `untrusted`: intact as
    far as anyone can tell, but no signature is by a trusted key. `tampered`: content, statement or signature do not
    belong together. `signed_by`: ids of the trusted keys. `statement`: None unless trusted or untrusted.
    """

    state: State
    signed_by: tuple[str, ...]
    statement: Mapping[str, Any] | None
    reason: str


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def key_id(key: Ed25519PublicKey) -> str:
    """`sha256:` and 64 hex digits over the raw public key."""
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def generate_key() -> tuple[bytes, bytes]:
    """A new key pair as PEM: (private in PKCS8 without password, public). The caller protects the private one."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, public


def load_private(pem: bytes, *, place: str = "") -> Ed25519PrivateKey:
    """An Ed25519 private key. PolicyError if it is anything else."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise PolicyError("a signing key must be an Ed25519 key in PEM without password", place=place) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise PolicyError("a signing key must be Ed25519", value=type(key).__name__, place=place)
    return key


def load_public(pem: bytes, *, place: str = "") -> Ed25519PublicKey:
    """An Ed25519 public key. PolicyError if it is anything else."""
    try:
        key = serialization.load_pem_public_key(pem)
    except ValueError as error:
        raise PolicyError("a trusted key must be an Ed25519 public key in PEM", place=place) from error
    if not isinstance(key, Ed25519PublicKey):
        raise PolicyError("a trusted key must be Ed25519", value=type(key).__name__, place=place)
    return key


def sign(
    file: PolicyFile, key: Ed25519PrivateKey, *, issued_at: str, mlflow_run: str | None, test_openings: int
) -> PolicyFile:
    """The file with a new envelope. `issued_at`: UTC, YYYY-MM-DDTHH:MM:SSZ.

    PolicyError if the stated hashes are not those of the content: what was changed by hand must be sealed first.
    """
    found = {"content_hash": content_hash(file), "decision_hash": decision_hash(file)}
    for name, value in found.items():
        if getattr(file, name) != value:
            raise PolicyError(f"`{name}` must be that of the content", value=getattr(file, name), hint=f"it is {value}")
    statement = found | {"issued_at": issued_at, "mlflow_run": mlflow_run, "test_openings": test_openings}
    payload = canonical_bytes(statement)
    signature = Signature(
        keyid=key_id(key.public_key()), sig=base64.b64encode(key.sign(pae(PAYLOAD_TYPE, payload))).decode()
    )
    envelope = Envelope(payloadType=PAYLOAD_TYPE, payload=base64.b64encode(payload).decode(), signatures=(signature,))
    return file.model_copy(update={"envelope": envelope})


def verify(file: PolicyFile, trusted: tuple[Ed25519PublicKey, ...]) -> Verification:
    """Compare content, stated hashes, statement and signatures."""
    hashes = {"content_hash": content_hash(file), "decision_hash": decision_hash(file)}
    for name, value in hashes.items():
        stated = getattr(file, name)
        if stated is not None and stated != value:
            return _tampered(f"`{name}` is {value}, the file states {stated}")
    if file.envelope is None or not file.envelope.signatures:
        return Verification("unsigned", (), None, "the file has no signature")
    envelope = file.envelope
    payload = _decoded(envelope.payload)
    statement = None if payload is None else _statement(payload)
    if payload is None or statement is None or envelope.payloadType != PAYLOAD_TYPE:
        return _tampered("the envelope does not hold a statement of routecal")
    for name, value in hashes.items():
        if statement.get(name) != value:
            return _tampered(f"`{name}` is {value}, the signed statement says {statement.get(name)}")
    by_id = {key_id(key): key for key in trusted}
    signed_by = []
    for signature in envelope.signatures:
        key = by_id.get(signature.keyid)
        if key is None:
            continue
        if not _holds(key, signature, pae(envelope.payloadType, payload)):
            return _tampered(f"the signature of {signature.keyid} does not belong to the statement")
        signed_by.append(signature.keyid)
    if not signed_by:
        ids = ", ".join(signature.keyid for signature in envelope.signatures)
        rule = "no trusted key among the signers" if trusted else "no trusted key was given; the signers claim to be"
        return Verification("untrusted", (), statement, f"{rule}: {ids}")
    return Verification("trusted", tuple(signed_by), statement, "signed by a trusted key")


def _holds(key: Ed25519PublicKey, signature: Signature, message: bytes) -> bool:
    raw = _decoded(signature.sig)
    if raw is None:
        return False
    try:
        key.verify(raw, message)
    except InvalidSignature:
        return False
    return True


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _statement(payload: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):  # no text, no JSON, a number without end
        return None
    return value if isinstance(value, dict) else None


def _tampered(reason: str) -> Verification:
    return Verification("tampered", (), None, reason)
