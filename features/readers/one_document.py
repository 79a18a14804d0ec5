"""Whether a log is one JSON document over several lines, where the format also comes as lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from features.readers.head import DOCUMENT_BYTES_MAX
from features.readers.lines import decode_object
from features.readers.plain import read_blocks

_BLOCK_BYTES = 1 << 20


def document_over_lines(path: Path) -> dict[str, Any] | None:
    """The object that a file is over several lines; None if it is none, and is to be read line by line.

    Raises SourceError if the file cannot be opened.
    """
    held: list[bytes] = []
    size = 0
    for block in read_blocks(path, _BLOCK_BYTES):
        if block is None:
            return None
        held.append(block)
        size += len(block)
        if size > DOCUMENT_BYTES_MAX or (len(held) == 1 and not _is_begun(block)):
            return None
    return decode_object(b"".join(held))[0] if held else None


def _is_begun(start: bytes) -> bool:
    """Whether an object begins on the first line and does not end on it."""
    first, newline, _ = start.lstrip().partition(b"\n")
    return bool(newline) and first.startswith(b"{") and decode_object(first)[0] is None
