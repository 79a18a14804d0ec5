"""What stands at the start of a file: enough to recognise its format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from features.errors import SourceError
from features.readers.lines import decode_object, split_lines
from features.readers.plain import is_text, read_blocks

HEAD_BYTES = 1 << 20
DOCUMENT_BYTES_MAX = 64 << 20
"""A file that is one JSON document is read whole; it may not be larger."""
_LINES, _OBJECTS = 40, 20


@dataclass(frozen=True, slots=True)
class Head:
    """`text`: the first HEAD_BYTES, damaged characters replaced. `objects`: JSON objects of the first lines, or the one
    document that the file is.
    """

    text: str
    objects: Sequence[dict[str, Any]] = field(default_factory=tuple)

    @property
    def lines(self) -> list[str]:
        """The first lines that are not blank."""
        return [line for line in self.text.split("\n")[:_LINES] if line.strip()]


def read_head(path: Path) -> Head:
    """The head of a file (gzip and zstd by content).

    Raises SourceError if the file cannot be opened, is empty or is not text.
    """
    held = _start(path, HEAD_BYTES)
    if not held:
        raise SourceError("a log must hold at least one row", place=str(path), hint="the file is empty")
    if not is_text(held):
        raise SourceError("a log must be text", place=str(path), hint="gzip and zstd are unpacked, nothing else")
    text = held.decode("utf-8", "replace")
    lines = split_lines(held)
    objects = [value for line in lines[:_LINES] if (value := decode_object(line)[0]) is not None][:_OBJECTS]
    if not objects and held.lstrip().startswith(b"{"):
        objects = _document(path)
    return Head(text, objects)


def _start(path: Path, size: int) -> bytes:
    held = b""
    for block in read_blocks(path, size):
        held += block or b""
        if block is None or len(held) >= size:
            break
    return held


def _document(path: Path) -> list[dict[str, Any]]:
    """The object that a file is as a whole, if it is one: over several lines, or on one that is longer than a head."""
    held = _start(path, DOCUMENT_BYTES_MAX + 1)
    if len(held) > DOCUMENT_BYTES_MAX:
        return []
    try:
        value = json.loads(held)
    except (ValueError, RecursionError):
        return []
    return [value] if isinstance(value, dict) else []
