"""The code's revision as a digest of its sources: the same in every clone, without git."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

PACKAGES = ("features", "models", "policies", "pipelines")
SUFFIXES = (".py", ".sql")


@functools.cache
def code_revision(root: Path | None = None) -> str:
    """`sha256:` and 64 hex digits over names and contents of the four packages' sources below `root`.

    A process keeps its first answer: the code that it runs does not change with the files.
    """
    root = root or Path(__file__).parents[2]
    digest = hashlib.sha256()
    for package in PACKAGES:
        files = (p for p in (root / package).rglob("*") if p.suffix in SUFFIXES and p.is_file())
        for path in sorted(files, key=lambda p: p.relative_to(root).as_posix()):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return f"sha256:{digest.hexdigest()}"
