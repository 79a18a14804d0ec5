"""Which files a command's paths mean."""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from features.errors import SourceError
from features.parquet import file_digest
from features.readers.archives import is_archive, unpack

_PLAIN = (".jsonl", ".ndjson", ".json", ".log", ".csv", ".prom", ".txt")
SUFFIXES = tuple(name + packed for name in _PLAIN for packed in ("", ".gz", ".zst"))
"""What is taken from a folder, archives too; a file that is named itself may have any suffix."""
_ARCHIVE = ".zip"


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file, and its name for provenance: below the folder that was given, or the file's own."""

    path: Path
    name: str


def find_logs(paths: Sequence[Path], unpack_to: Callable[[], Path] | None = None) -> list[LogFile]:
    """Files of paths, folders (with subfolders, hidden files left out) and glob patterns, sorted, each once.

    A zip archive counts as a folder, if `unpack_to` is given: it makes the folder that members are unpacked to.
    Raises SourceError if a path or pattern means no file, or what it names is no regular file.
    """
    found: dict[Path, LogFile] = {}
    for path in paths:
        try:
            for log in _logs(path):
                found.setdefault(log.path.resolve(), log)
        except OSError as error:  # a name too long, a folder that is closed to us
            raise SourceError("a log must be reachable", value=error.strerror, place=str(path)) from error
    whole = [log for one in found.values() for log in ([one] if unpack_to is None else _members(one, unpack_to))]
    return sorted(whole, key=lambda log: (log.name, str(log.path)))


def log_digest(path: Path) -> str:
    """SHA-256 of a log as it lies on disk, as hex digits.

    Raises SourceError if it cannot be read.
    """
    try:
        return file_digest(path)
    except OSError as error:
        raise SourceError("a log must be readable", value=error.strerror, place=str(path)) from error


def _logs(path: Path) -> list[LogFile]:
    if path.is_dir():
        taken = (*SUFFIXES, _ARCHIVE)
        inside = [p for p in path.rglob("*") if p.is_file() and p.name.endswith(taken) and not _hidden(p, path)]
        if not inside:
            raise SourceError(
                "a folder must hold a log",
                place=str(path),
                hint=f"names end with {' '.join(_PLAIN)}, packed as .gz or .zst or not",
            )
        return [LogFile(p, p.relative_to(path).as_posix()) for p in inside]
    if path.is_file():
        return [LogFile(path, path.name)]
    if path.exists():
        # A log is read more than once: for its digest, its format and its rows. A pipe would not give it twice.
        raise SourceError("a log must be a regular file", place=str(path), hint="write what a pipe holds to a file")
    matches = [Path(match) for match in glob.glob(str(path), recursive=True)]  # noqa: PTH207  may be absolute
    files = [match for match in matches if match.is_file()]
    if not files:
        raise SourceError("a log must exist", place=str(path))
    return [LogFile(match, match.name) for match in files]


def _members(log: LogFile, unpack_to: Callable[[], Path]) -> list[LogFile]:
    """The file itself, or the logs in it if it is an archive."""
    try:
        if not is_archive(log.path):
            return [log]
        return [LogFile(path, f"{log.name}/{name}") for path, name in unpack(log.path, unpack_to(), SUFFIXES)]
    except OSError as error:
        raise SourceError("a log must be readable", value=error.strerror, place=str(log.path)) from error


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)
