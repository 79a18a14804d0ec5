"""How commands speak: results on stdout, people's text on stderr, errors as rule, value, place and hint."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, ParamSpec, TypeVar

import typer

from features.errors import RoutecalError

WRONG_USE = 2
"""Exit code of wrong use and of input that cannot be read; a gate or check that says no is 1."""

P = ParamSpec("P")
R = TypeVar("R")


class Mode:
    """What the options before the command say. One command runs in a process, so one value is enough."""

    debug = False
    emitted = False
    """The one JSON object was printed."""


def say(text: str = "") -> None:
    """A line for people, on stderr. Names of logs stand in it: what would steer a terminal is shown as a mark."""
    sys.stderr.write("\n".join(plain(line) for line in text.split("\n")) + "\n")


def plain(text: str) -> str:
    """A text for a terminal, without characters that steer it."""
    return text if text.isprintable() else "".join(one if one.isprintable() else "\ufffd" for one in text)


def emit(value: dict[str, Any]) -> None:
    """The one JSON object of `--json`, on stdout: ASCII, whatever a file's name or a terminal's encoding is."""
    Mode.emitted = True
    sys.stdout.write(json.dumps(_plain(value), allow_nan=False) + "\n")


def _plain(value: Any) -> Any:  # noqa: ANN401  any value of a report or a query
    """The value as JSON can say it: numbers that are none (NaN, infinities) are null, times are ISO texts."""
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): _plain(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(held) for held in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def show_error(error: RoutecalError, *, as_json: bool) -> None:
    """An error by its parts; with `--json` also as an object with the key `error`."""
    say(f"error: {error.rule}")
    parts = {"value": None if error.value is None else repr(error.value), "place": error.place, "hint": error.hint}
    for name, text in parts.items():
        if text:
            say(f"  {name + ':':<7}{text}")
    if as_json:
        emit({"error": {"kind": type(error).__name__, "rule": error.rule, **parts}})


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Ends a command with 2 where it raises a RoutecalError; `--debug` lets the error through."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except RoutecalError as error:
            if Mode.debug:
                raise
            show_error(error, as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(WRONG_USE) from None

    return run
