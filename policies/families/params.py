"""A family's parameters as a frozen dataclass, as one row of numbers (kernels, search) and as JSON (policy file).

Fields are float, int, bool, a Literal of strings, or such a dataclass again: `prefill.cache_threshold` names a field of
a field. In a row a bool is 0 or 1 and a string its place in the Literal.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from features.errors import PolicyError

T = TypeVar("T")

Row: TypeAlias = tuple[float, ...]
Value: TypeAlias = float | str | bool


@dataclasses.dataclass(frozen=True, slots=True)
class NoParams:
    """Of a family without parameters."""


def names(kind: type) -> tuple[str, ...]:
    """Names of the row's places."""
    return tuple(name for name, _ in _leaves(kind))


def to_row(params: object) -> Row:
    """The parameters as numbers, in the order of `names`."""
    row = []
    for name, hint in _leaves(type(params)):
        value = _get(params, name)
        row.append(float(get_args(hint).index(value)) if get_origin(hint) is Literal else float(value))
    return tuple(row)


def from_row(kind: type[T], row: Row) -> T:
    """The parameters of a row. PolicyError for a row of another length and for values that the family refuses."""
    leaves = list(_leaves(kind))
    if len(row) != len(leaves):
        raise PolicyError(f"`params` must have {len(leaves)} numbers", value=len(row), place=kind.__name__)
    flat: dict[str, Value] = {}
    for (name, hint), number in zip(leaves, row, strict=True):
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            if not 0 <= number < len(choices):
                raise PolicyError(f"`{name}` must be the place of one of {choices}", value=number)
            flat[name] = choices[int(number)]
        else:
            flat[name] = bool(number) if hint is bool else int(number) if hint is int else number
    return _build(kind, flat, "")


def to_json(params: object) -> dict[str, Value]:
    """Flat JSON values, every name."""
    return {name: _get(params, name) for name in names(type(params))}


def from_json(kind: type[T], values: Mapping[str, object], place: str = "family_params") -> T:
    """Strictly: every name, no other. PolicyError says which rule is broken and where."""
    leaves = dict(_leaves(kind))
    for name in values:
        if name not in leaves:
            raise PolicyError("a parameter must be one of the family's", value=name, place=place)
    flat: dict[str, Value] = {}
    for name, hint in leaves.items():
        if name not in values:
            raise PolicyError("a family's parameters must all be given", value=name, place=place)
        flat[name] = typed(hint, values[name], f"{place}.{name}")
    return _build(kind, flat, "")


def typed(hint: object, value: object, place: str) -> Value:
    """One value, checked against its type: no conversion but from whole numbers to float."""
    if get_origin(hint) is Literal:
        if value in get_args(hint) and isinstance(value, str):
            return value
        raise PolicyError(f"must be one of {', '.join(get_args(hint))}", value=value, place=place)
    if hint is bool and isinstance(value, bool):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if number and hint is float:
        return float(value)  # type: ignore[arg-type]  # a number, as just checked
    if number and hint is int and value == int(value):  # type: ignore[call-overload]
        return int(value)  # type: ignore[call-overload,no-any-return]
    raise PolicyError(f"must be a finite {getattr(hint, '__name__', hint)}", value=value, place=place)


def in_range(name: str, value: float, low: float, high: float = math.inf) -> None:
    """PolicyError unless low <= value <= high and value is finite."""
    if not (math.isfinite(value) and low <= value <= high):
        bound = f"{name} >= {low:g}" if high == math.inf else f"{low:g} <= {name} <= {high:g}"
        raise PolicyError(f"`{bound}` must hold", value=value)


def _leaves(kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from _leaves(hint, f"{prefix}{field.name}.")  # type: ignore[arg-type]  # a class, not an instance
        else:
            yield prefix + field.name, hint


def _get(params: object, name: str) -> Value:
    value: Any = params
    for part in name.split("."):
        value = getattr(value, part)
    found: Value = value
    return found


def _build(kind: type[T], flat: Mapping[str, Value], prefix: str) -> T:
    hints = get_type_hints(kind)
    made: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        hint, name = hints[field.name], prefix + field.name
        nested = dataclasses.is_dataclass(hint)
        made[field.name] = _build(hint, flat, f"{name}.") if nested else flat[name]
    return kind(**made)
