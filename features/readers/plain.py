"""A file's plain bytes in blocks, whether it is gzip or not."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from features.errors import SourceError

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_PACKED_BYTES = 4096
"""Packed bytes at a time: what stands before a fault is kept up to here."""


def read_blocks(path: Path, size: int) -> Iterator[bytes | None]:
    """Blocks of plain bytes, about `size` each; None after the last one if a gzip stream ends early or is damaged.

    Raises SourceError if the file cannot be opened.
    """
    try:
        with path.open("rb") as raw:
            head = raw.read(len(_BOM))
            raw.seek(len(_BOM) if head == _BOM else 0)
            if not head.startswith(_GZIP):
                while plain := raw.read(size):
                    yield plain
                return
            held, marked = b"", True
            for block in _gunzip(raw, size):
                if block is None:
                    yield from [held, None] if held else [None]
                    return
                held += block
                if marked and len(held) >= len(_BOM):
                    held, marked = held.removeprefix(_BOM), False
                if len(held) >= size:
                    yield held
                    held = b""
            if held:
                yield held
    except OSError as error:
        raise SourceError("a log must be readable", value=error.strerror, place=str(path)) from error


def _gunzip(raw: BinaryIO, size: int) -> Iterator[bytes | None]:
    """Members of a gzip file one after the other, at most `size` bytes at a time."""
    member = zlib.decompressobj(wbits=31)
    waiting = b""
    while True:
        data = waiting or raw.read(_PACKED_BYTES)
        if not data:
            if not member.eof:
                yield None
            return
        if member.eof:
            data = data.lstrip(b"\x00")  # padding after the last member
            if not data:
                waiting = b""
                continue
            member = zlib.decompressobj(wbits=31)
        try:
            block = member.decompress(data, size)
        except zlib.error:
            yield None
            return
        waiting = member.unused_data if member.eof else member.unconsumed_tail
        if block:
            yield block
