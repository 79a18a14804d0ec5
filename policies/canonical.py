"""Canonical JSON (RFC 8785) and the hashes over it: equal content, equal bytes, in every language."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import rfc8785

from features.errors import PolicyError

Json: TypeAlias = Any
"""A JSON value; what it holds is checked by the models that read it."""


def canonical_bytes(value: Mapping[str, Any]) -> bytes:
    """RFC 8785 bytes of a JSON object. PolicyError if a number has no canonical form."""
    try:
        return rfc8785.dumps(_floats(value))
    except rfc8785.CanonicalizationError as error:
        raise PolicyError("every number must have a canonical JSON form", value=str(error)) from error


def sha256(data: bytes) -> str:
    """`sha256:` and 64 hex digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def hash_without(value: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    """Hash of an object without some of its top-level keys."""
    return sha256(canonical_bytes({key: item for key, item in value.items() if key not in keys}))


def _floats(value: Json) -> Json:
    # JSON has one kind of number: 1e18 comes back as an integer, which the library refuses above 2^53.
    if isinstance(value, Mapping):
        return {key: _floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_floats(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return float(value)
    return value
