"""Workloads as plain arrays on disk: one .npy a column in a folder of its own, memory-mapped when they are read.

A folder is written beside its place and moved there whole. Its `columns.json` names every column with the digest of its
bytes, so that what is damaged or partly there counts as not there. Processes that read one folder share its pages.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.twin.segments import Segments, know_segments, segments_of
from policies.twin.workload import Arrivals, Workload

FORMAT = 2
INDEX = "columns.json"
LEFT_OUT = ("request_ids",)
_ARRIVALS, _SEGMENTS = "arrivals.", "segments."


def save_workload(folder: Path, workload: Workload) -> None:
    """Write a workload without its request ids; what the folder held before is replaced."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        columns = _columns(workload)
        for name, values in columns.items():
            np.save(beside / f"{name}.npy", np.ascontiguousarray(values), allow_pickle=False)
        digests = {name: _digest(beside / f"{name}.npy") for name in columns}
        (beside / INDEX).write_text(json.dumps({"format": FORMAT, "columns": digests}), "ascii")
        _move(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def load_workload(folder: Path) -> Workload | None:
    """The workload of a folder, memory-mapped; None where there is none or it is damaged.

    Its arrays may be written to: the change stays in this process.
    """
    try:
        index = json.loads((folder / INDEX).read_bytes())
        digests = index["columns"] if index["format"] == FORMAT else {}
        if any(_digest(folder / f"{name}.npy") != digest for name, digest in digests.items()):
            return None
        held = {name: _mapped(folder / f"{name}.npy") for name in digests}
        own, known, cut = (_part(held, prefix) for prefix in ("", _ARRIVALS, _SEGMENTS))
        workload = Workload(**own, arrivals=Arrivals(**known) if known else None)
        know_segments(workload, Segments(**cut))
        return workload
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def cached_workload(root: Path, key: str, make: Callable[[], Workload]) -> tuple[Workload, bool]:
    """The workload kept under `key`, and whether it was there; else it is made and kept.

    `key` names everything that `make` depends on. A cache that cannot be written is done without.
    """
    found = load_workload(root / key)
    if found is not None:
        return found, True
    made = make()
    try:
        save_workload(root / key, made)
    except OSError:
        return made, False
    return load_workload(root / key) or made, False


def _part(held: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The columns of a prefix, without it; of no prefix those that have none."""
    fits = (name for name in held if (name.startswith(prefix) if prefix else "." not in name))
    return {name.removeprefix(prefix): held[name] for name in fits}


def _columns(workload: Workload) -> Mapping[str, npt.NDArray[Any]]:
    own = {f.name: getattr(workload, f.name) for f in fields(Workload) if f.name not in (*LEFT_OUT, "arrivals")}
    if workload.arrivals is not None:
        own |= {_ARRIVALS + f.name: getattr(workload.arrivals, f.name) for f in fields(Arrivals)}
    own |= {_SEGMENTS + name: values for name, values in segments_of(workload)._asdict().items()}
    return {name: values for name, values in own.items() if values is not None}


def _move(beside: Path, folder: Path) -> None:
    """The finished folder takes its place. Of several writers of equal content one may be faster: its folder stands."""
    for _ in range(2):
        try:
            beside.replace(folder)
        except OSError:
            if load_workload(folder) is not None and _index(folder) == _index(beside):
                return
            shutil.rmtree(folder, ignore_errors=True)
        else:
            return
    beside.replace(folder)


def _index(folder: Path) -> bytes:
    return (folder / INDEX).read_bytes()


def _digest(path: Path) -> list[int]:
    """Size and CRC-32 of a file: a crash or a bad disk is found, malice is not."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return [len(content), zlib.crc32(content)]


def _mapped(path: Path) -> npt.NDArray[Any]:
    """A column as a plain array that a kernel takes: not read-only, which would be another type to the compiler."""
    whole = np.load(path, mmap_mode="c", allow_pickle=False)
    return whole.view(np.ndarray) if whole.size else np.array(whole)
