"""Zip archives of logs: taken like a folder, its members unpacked beside the ingest's own files."""

from __future__ import annotations

import shutil
import zipfile
import zlib
from pathlib import Path

from features.errors import LakeError, SourceError

_MAGIC = b"PK\x03\x04"


def is_archive(path: Path) -> bool:
    """Whether a file begins like a zip archive that holds something."""
    with path.open("rb") as raw:
        return raw.read(len(_MAGIC)) == _MAGIC


def unpack(archive: Path, folder: Path, suffixes: tuple[str, ...]) -> list[tuple[Path, str]]:
    """The members whose names end with one of `suffixes`, unpacked below `folder`, each with its name in the archive.

    Files are numbered, so no name of a member reaches the file system. Hidden members are left out.
    Raises SourceError if the archive is damaged, locked by a password or holds no such member, LakeError if there is no
    room to unpack it.
    """
    found: list[tuple[Path, str]] = []
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(archive) as held:
            for number, member in enumerate(held.infolist()):
                if member.is_dir() or not member.filename.endswith(suffixes) or _hidden(member.filename):
                    continue
                path = folder / f"{number:06d}"
                with held.open(member) as packed, path.open("wb") as plain:
                    shutil.copyfileobj(packed, plain)
                found.append((path, member.filename))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise SourceError("a zip archive must be whole and open", value=str(error), place=str(archive)) from error
    except OSError as error:
        raise LakeError(
            "an archive must be unpacked", value=error.strerror, place=str(archive), hint="is there room on the disk?"
        ) from error
    if not found:
        raise SourceError("an archive must hold a log", place=str(archive), hint=f"names end with {' '.join(suffixes)}")
    return found


def _hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in name.split("/"))
