"""A file that is one JSON document. It is read whole, so it may not be large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from features.errors import SourceError
from features.readers.head import DOCUMENT_BYTES_MAX
from features.readers.lines import decode_object
from features.readers.plain import read_blocks

_BLOCK_BYTES = 1 << 20


def document_bytes(path: Path) -> bytes:
    """Plain bytes of a document (gzip and zstd by content).

    Raises SourceError if the file cannot be opened, is empty, is cut short or is larger than DOCUMENT_BYTES_MAX.
    """
    blocks: list[bytes] = []
    size = 0
    for block in read_blocks(path, _BLOCK_BYTES):
        if block is None:
            raise SourceError("a JSON document must be whole", place=str(path), hint="its packing ends early")
        blocks.append(block)
        size += len(block)
        if size > DOCUMENT_BYTES_MAX:
            limit = f"{DOCUMENT_BYTES_MAX >> 20} MiB"
            raise SourceError(f"a JSON document may hold {limit}", place=str(path), hint="split it into several files")
    if not blocks:
        raise SourceError("a log must hold at least one row", place=str(path), hint="the file is empty")
    return b"".join(blocks)


def read_document(path: Path) -> dict[str, Any]:
    """The object that a file is, read as strictly as lines are: finite numbers, UTF-8, the first of a doubled key.

    Raises SourceError if the file cannot be read or is no such object.
    """
    value, rule = decode_object(document_bytes(path))
    if value is None:
        raise SourceError(
            "a log must be one JSON object", value=f"it breaks `{rule}`", place=str(path), hint="is the file whole?"
        )
    return value
