"""A router's own config: read into a family's parameters, written from them. Texts in, texts out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from features.errors import PolicyError
from policies.families.params import typed


@dataclass(frozen=True, slots=True)
class Imported:
    """Parameters of a family, and what else the config says that no decision of the twin knows of."""

    family: str
    params: Any
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigFormat:
    """One form of config. `read` raises PolicyError for what the router would refuse and for what the family lacks;
    `write` for what the form cannot say. `source`: the version that the names and checks are from.
    """

    name: str
    family: str
    source: str
    read: Callable[[str], Imported]
    write: Callable[[Any], str]


class Fields:
    """A mapping of a config, taken key by key. `done` refuses what is left."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise PolicyError("must be a mapping", value=type(value).__name__, place=place)
        self.left: dict[str, Any] = dict(value)
        self.place = place

    def take(self, key: str, kind: type, default: Any = None) -> Any:  # noqa: ANN401  # of the type that is asked for
        """The value of a key of a type, or the default if it is not there."""
        if key not in self.left:
            return default
        value, place = self.left.pop(key), f"{self.place}.{key}"
        if kind in (float, int, bool):
            return typed(kind, value, place)
        if not isinstance(value, kind):
            raise PolicyError(f"must be a {kind.__name__}", value=value, place=place)
        return value

    def need(self, key: str, kind: type) -> Any:  # noqa: ANN401
        """The same of a key that must be there."""
        if key not in self.left:
            raise PolicyError("a key is missing", value=key, place=self.place)
        return self.take(key, kind)

    def note(self, *keys: str) -> list[str]:
        """Keys that the router knows and the twin does not, as they stand; taken."""
        found = [key for key in keys if key in self.left]
        return [f"{self.place}.{key} = {self.left.pop(key)!r}"[:200] for key in found]

    def done(self) -> None:
        """PolicyError if a key is left that nobody knows."""
        for key in self.left:
            raise PolicyError("the router knows no such key", value=key, place=self.place)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # it publishes no types
    """Plain values; a key that stands twice is refused."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    pairs = [(loader.construct_object(k, deep=True), loader.construct_object(v, deep=True)) for k, v in node.value]
    names = [repr(key) for key, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PolicyError("a key must stand once in its mapping", value=twice, place=f"line {node.start_mark.line + 1}")
    return dict(pairs)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(text: str) -> Any:  # noqa: ANN401  # any YAML value
    """One YAML document. PolicyError if it is none."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  # a SafeLoader
    except (yaml.YAMLError, TypeError, RecursionError) as error:
        raise PolicyError("a config must be YAML", value=str(error).splitlines()[0]) from error


def write_yaml(value: object) -> str:
    """A document with keys in the order of `value`."""
    text: str = yaml.safe_dump(value, sort_keys=False)
    return text


def as_fields(params: object) -> dict[str, Any]:
    """Fields of one dataclass by name."""
    return {each.name: getattr(params, each.name) for each in dataclasses.fields(params)}  # type: ignore[arg-type]


def whole(value: float) -> float | int:
    """A number as people write it: 2, not 2.0."""
    return int(value) if value == int(value) else value
