"""Estimators <-> plain JSON values, strict and exact.

The portable dataclasses are the format: pydantic reads and writes them, their own rules hold on the way in and out.
Floats keep every bit (shortest round-trip digits). Numbers stay within 2⁵³, so canonical JSON can write them and read
them back. Values that JSON turned into integers (1.0 -> 1) come back as floats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

from pydantic import TypeAdapter, ValidationError

from features.errors import ModelError
from models.portable.estimators import Estimators

if TYPE_CHECKING:
    Adapter: TypeAlias = TypeAdapter[Estimators]

Json: TypeAlias = "float | int | str | bool | Sequence[Json] | Mapping[str, Json] | None"

LARGEST = 2.0**53
DEEPEST = 20
"""Levels of nesting: twice what estimators have."""


def to_dict(estimators: Estimators) -> dict[str, Json]:
    """Plain dicts, lists and numbers, keys sorted. ModelError if a number is not finite or a shape is wrong."""
    made = cast("dict[str, Json]", _plain(_adapter().dump_python(estimators, mode="json"), "estimators"))
    from_dict(made)  # what is written can be read, or nothing is written
    return made


def from_dict(value: Json) -> Estimators:
    """The estimators behind `to_dict`. ModelError names the place of the first rule that is broken."""
    try:
        return _adapter().validate_json(json.dumps(_plain(value, "estimators")), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(["estimators", *(str(part) for part in first["loc"])])
        shown = str(first["input"])
        raise ModelError(first["msg"], value=shown if len(shown) <= 80 else f"{shown[:80]}…", place=place) from error


@cache
def _adapter() -> Adapter:
    return TypeAdapter(Estimators)


def _plain(value: object, place: str, depth: int = 0) -> Json:
    """Numbers checked, keys sorted, one zero. ModelError with the place of what is no JSON, or nested too deep."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        if not abs(value) <= LARGEST:  # NaN is not smaller
            # Python shows no integer of thousands of digits.
            shown = value if isinstance(value, float) or value.bit_length() <= 1024 else f"{value.bit_length()} bits"
            raise ModelError("a number must be finite and at most 2^53 in size", value=shown, place=place)
        return value + 0.0 if isinstance(value, float) else value  # -0.0 -> 0.0: canonical JSON has one zero
    if depth > DEEPEST:
        raise ModelError(f"values must be nested at most {DEEPEST} deep", value=type(value).__name__, place=place)
    if isinstance(value, Mapping):
        return {str(key): _plain(value[key], f"{place}.{key}", depth + 1) for key in sorted(value, key=str)}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(item, f"{place}[{at}]", depth + 1) for at, item in enumerate(value)]
    raise ModelError("a JSON value must stand here", value=type(value).__name__, place=place)
