"""Files that are there whole or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, content: bytes) -> None:
    """Puts `content` at `path` as `whole_file` does.

    Raises OSError if that cannot be done; the file is then what it was before.
    """
    with whole_file(path) as out:
        out.write(content)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write beside the place, flush to disk, rename over it, flush the folder. Readers see the old file or the new.

    An exception inside leaves the file as it was. Raises OSError if the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    _clear_abandoned(path.parent)
    try:
        with _held(beside) as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _held(beside: Path) -> BinaryIO:
    """A new file that is locked as long as its writer lives."""
    while True:
        out = beside.open("wb")
        fcntl.flock(out, fcntl.LOCK_EX)
        if beside.exists() and beside.stat().st_ino == os.fstat(out.fileno()).st_ino:
            return out
        out.close()  # taken for abandoned between its making and its locking


def _clear_abandoned(folder: Path) -> None:
    """Removes what writers left in `folder` that were killed."""
    for left in folder.glob(".*.tmp"):
        try:
            with left.open("rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink(missing_ok=True)
        except (BlockingIOError, FileNotFoundError, PermissionError):
            continue  # its writer is at work or has just ended, or it is another one's
