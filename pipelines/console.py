"""How commands speak: results on stdout, people's text on stderr, errors as rule, value, place and hint."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
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


def say(text: str = "") -> None:
    """A line for people, on stderr."""
    sys.stderr.write(text + "\n")


def emit(value: dict[str, Any]) -> None:
    """The one JSON object of `--json`, on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")


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
