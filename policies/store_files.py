"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from features.errors import PolicyError


def write_whole(path: Path, data: bytes) -> None:
    """Write beside the place, flush to disk, rename over it, flush the folder. Readers see the old file or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as out:
            out.write(data)
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


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object. PolicyError if the file holds anything else."""
    try:
        value = json.loads(path.read_bytes())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise PolicyError("a file of the store must be JSON", value=str(error), place=str(path)) from error
    if not isinstance(value, dict):
        raise PolicyError("a file of the store must hold one object", value=type(value).__name__, place=str(path))
    return value
