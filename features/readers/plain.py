"""A file's plain bytes in blocks, whether it is packed (gzip, zstd: told by its content) or not."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from features.errors import SourceError

CHUNK_BYTES = 16 << 20
LINE_BYTES_MAX = 64 << 20
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"
_NEWLINE = ord("\n")
_PACKED_BYTES = 4096
"""Packed bytes at a time: what stands before a fault is kept up to here."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines; `first_row` is the number of the first. `cut_short`: from here on the file cannot be read."""

    first_row: int
    content: bytes
    cut_short: bool = False


def whole_lines(path: Path) -> Iterator[Chunk]:
    """The lines of a text file, CHUNK_BYTES or more at a time; the last chunk says if a packed file was cut short.

    Raises SourceError if the file cannot be opened, is empty, is not text or has a line without end.
    """
    row, rest, empty = 1, b"", True
    for block in read_blocks(path, CHUNK_BYTES):
        if block is None:
            # What follows the last whole line was cut as well: both are one bad line.
            yield Chunk(row, rest, cut_short=True)
            return
        if empty and not is_text(block):
            raise SourceError("a log must be text", place=str(path), hint="gzip and zstd are unpacked, nothing else")
        empty = False
        cut = block.rfind(b"\n") + 1
        if cut == 0:
            rest += block
            if len(rest) > LINE_BYTES_MAX:  # no log of ours; reading on would fill the memory
                raise SourceError("a line must be shorter than 64 MiB", place=f"{path} row {row}", hint="is it a log?")
            continue
        whole, rest = rest + block[:cut], block[cut:]
        yield Chunk(row, whole)
        row += int(np.count_nonzero(np.frombuffer(whole, np.uint8) == _NEWLINE))
    if rest:
        yield Chunk(row, rest)
    if empty:
        raise SourceError("a log must hold at least one row", place=str(path), hint="the file is empty")


def is_text(start: bytes) -> bool:
    """Whether a file that starts so may be a log; a zero byte here and there is damage, and costs its line only."""
    seen = start[:4096]
    return seen.count(0) * 100 <= len(seen)


def read_blocks(path: Path, size: int) -> Iterator[bytes | None]:
    """Blocks of plain bytes, about `size` each; None after the last one if a packed stream ends early or is damaged.

    Raises SourceError if the file cannot be opened.
    """
    try:
        with path.open("rb") as raw:
            head = raw.read(len(_ZSTD))
            raw.seek(len(_BOM) if head.startswith(_BOM) else 0)
            unpack = _gunzip if head.startswith(_GZIP) else _unzstd if head == _ZSTD else None
            if unpack is None:
                while plain := raw.read(size):
                    yield plain
                return
            held, marked = bytearray(), True  # it grows in place: a chunk is made of thousands of blocks
            for block in unpack(raw, size):
                if block is None:
                    yield from [bytes(held), None] if held else [None]
                    return
                held += block
                if marked and len(held) >= len(_BOM):
                    held, marked = held.removeprefix(_BOM), False
                if len(held) >= size:
                    yield bytes(held)
                    held.clear()
            if held:
                yield bytes(held)
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


def _unzstd(raw: BinaryIO, size: int) -> Iterator[bytes | None]:
    """Frames of a zstd file one after the other. A few packed bytes at a time: they may unpack to thousands each."""
    del size
    import zstandard

    frame = zstandard.ZstdDecompressor().decompressobj()
    while data := raw.read(_PACKED_BYTES):
        try:
            while data:
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                block = frame.decompress(data)
                data = frame.unused_data if frame.eof else b""
                if block:
                    yield block
        except zstandard.ZstdError:
            yield None
            return
    if not frame.eof:
        yield None
