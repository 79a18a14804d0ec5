"""A settings file that breaks a rule: which key, which value, which rule, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from features.errors import SettingsError

M = TypeVar("M", bound=BaseModel)


def validated(table: Mapping[str, Any], place: str, model: type[M]) -> M:
    """The table as it is written; `model` says what may stand in it.

    Raises SettingsError for the first broken rule; an unknown key comes before a missing one, which it often explains.
    """
    try:
        return model.model_validate(table)
    except ValidationError as error:
        found = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
        raise _to_error(found[0], len(found), place, model) from None


def _to_error(first: ErrorDetails, count: int, place: str, model: type[BaseModel]) -> SettingsError:
    location = [part for part in first["loc"] if part not in {"date", "datetime", "[key]"}]
    # Pydantic adds the branch of a union, `constrained-str` or `function-...`, which is no key of the file.
    location = [part for part in location if isinstance(part, int) or not part.startswith(("constrained", "function"))]
    value = None if first["type"] == "missing" else first["input"]
    if isinstance(value, Mapping):
        value = sorted(value)
    hints = [_hint(first["type"], location, model)]
    if count > 1:
        hints.append(f"{count - 1} more of the file's values break a rule")
    return SettingsError(
        _rule(first),
        value=value,
        place=f"{place}: {dotted(location)}",
        hint="; ".join(hint for hint in hints if hint),
    )


def dotted(location: list[int | str]) -> str:
    """`pools.chat.nodes[2].rack`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _rule(first: ErrorDetails) -> str:
    if first["type"] == "missing":
        return "a required key must be there"
    if first["type"] == "extra_forbidden":
        return "a key must be one that routecal knows"
    if first["type"] == "string_pattern_mismatch":
        return f"a name must match {first['ctx']['pattern']}"
    message = str(first["msg"])
    return message[0].lower() + message[1:]


def _hint(kind: str, location: list[int | str], model: type[BaseModel]) -> str:
    if kind == "extra_forbidden":
        known = sorted(_fields(location[:-1], model))
        close = get_close_matches(str(location[-1]), known, n=1)
        return f"did you mean `{close[0]}`?" if close else f"known here: {', '.join(known)}"
    if kind == "timezone_aware":
        return "write a time with its offset, such as 2026-11-01T00:00:00Z"
    return ""


def _fields(location: list[int | str], model: type[BaseModel]) -> set[str]:
    """Keys that may stand in the table at a location."""
    at: Any = model
    for part in location:
        if isinstance(at, type) and issubclass(at, BaseModel):
            at = at.model_fields[str(part)].annotation
        else:  # a value of a mapping or a sequence
            at = [arg for arg in get_args(at) if arg is not Ellipsis][-1]
        if get_origin(at) in {Union, UnionType}:
            at = next(arg for arg in get_args(at) if arg is not type(None))
    return set(at.model_fields) if isinstance(at, type) and issubclass(at, BaseModel) else set()
