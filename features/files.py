"""Files that are there whole or not at all."""

from __future__ import annotations

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
    try:
        with beside.open("wb") as out:
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
