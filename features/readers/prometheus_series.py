"""One series of a metric: what its name and labels say, parsed once, however often the series is met."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from features.readers.prometheus_families import (
    GAUGE,
    KEPT_LABELS,
    MODEL_LABELS,
    RANK_LABELS,
    SAMPLES,
    TARGET_LABELS,
    Family,
)

UNUSED, MALFORMED = "unused_family", "exposition"
"""Kinds of series that give no rows: of a family that nothing uses, and of no form that the format knows."""
_HEAD = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)[ \t]*(?:\{(.*)\}?)?", re.DOTALL)
_LABEL = re.compile(r'[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|\Z)')
_RANK = re.compile(r"[0-9]{1,6}")
_ESCAPED = re.compile(r"\\(.)")
_PLAIN = {"n": "\n"}
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Series:
    """`kind`: "" for a series that gives rows, else why not. `worker` None: the scraped process.

    `suffix` is what follows the worker in the node's name: the rank of an engine, nothing for a router.
    """

    kind: str
    metric: str = ""
    labels: str = ""
    worker: str | None = None
    suffix: str = ""
    gauge: bool = False


def series_of_text(head: str) -> Series:
    """Of `name`, or of `name{label="value",…` with or without its last brace."""
    if head.startswith("{"):
        return Series(UNUSED)  # a quoted name: of none of our families
    found = _HEAD.fullmatch(head.rstrip(" \t"))
    if found is None:
        return Series(MALFORMED)
    name, inside = found.groups()
    labels = _labels((inside or "").removesuffix("}"))
    return Series(MALFORMED) if labels is None else series_of(name, labels)


def series_of(name: str, labels: Mapping[str, str]) -> Series:
    """Of a name and its labels."""
    if name not in SAMPLES:
        return Series(UNUSED)
    family, stored = SAMPLES[name]
    worker = next((labels[key] for key in family.node_labels or TARGET_LABELS if labels.get(key)), None)
    about_target = worker is None and bool(family.node_labels)
    rank = next((labels[key] for key in RANK_LABELS if _RANK.fullmatch(labels.get(key, ""))), "0")
    return Series(
        "",
        stored,
        canonical(_kept(family, labels)),
        None if worker is None else plain_worker(worker),
        f"/dp{int(rank)}" if family.of_engine and not about_target else "",
        family.kind == GAUGE,
    )


def plain_worker(name: str) -> str:
    """The worker of a target, an instance label or a URL: host and port, without scheme and path."""
    return _SCHEME.sub("", name).split("/", 1)[0]


def canonical(labels: Mapping[str, str]) -> str:
    """`a="1",b="2"`, sorted by name, with the escapes of the exposition format."""
    return ",".join(f'{key}="{_escape(value)}"' for key, value in sorted(labels.items()))


def _kept(family: Family, labels: Mapping[str, str]) -> dict[str, str]:
    kept = KEPT_LABELS if family.of_engine else KEPT_LABELS.union(MODEL_LABELS)
    return {key: value for key, value in labels.items() if key in kept and key not in family.node_labels}


def _labels(inside: str) -> dict[str, str] | None:
    """Labels between the braces, None if they are not of the form."""
    found: dict[str, str] = {}
    at = 0
    while at < len(inside) and inside[at:].strip(" \t"):
        match = _LABEL.match(inside, at)
        if match is None:
            return None
        found[match.group(1)] = _ESCAPED.sub(_unescape, match.group(2))
        at = match.end()
    return found


def _unescape(match: re.Match[str]) -> str:
    return _PLAIN.get(match.group(1), match.group(1))


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
