"""The policy store: immutable versions, an atomic `current`, its history, and the record of test days. One tree a pool.

    <root>/<pool>/versions/<day>-<hash>.json   every published file, written once
    <root>/<pool>/current.json                 what routers load; replaced by one rename
    <root>/<pool>/history/<number>.json        every move of `current`, in order, written before the move
    <root>/<pool>/test-days/<day>/<hash>.json  outcome of a test day, by decision hash: the first one stands
    <root>/<pool>/frozen.json                  while it exists, `current` does not move by itself

A process that dies between a history entry and the rename leaves a `current` that is one move behind; the next writer
finishes that move. Readers always see a whole file. Writers of one pool take turns by a lock file.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from features.errors import PolicyError
from features.files import write_whole
from policies.canonical import canonical_bytes
from policies.policy_file import content_hash, parse, to_bytes
from policies.policy_models import PolicyFile
from policies.store_files import read_object


@dataclass(frozen=True, slots=True)
class Move:
    """One move of `current`. `at`: UTC, YYYY-MM-DDTHH:MM:SSZ, when it took effect."""

    number: int
    at: str
    action: str  # promote, rollback
    policy_version: str
    content_hash: str
    reason: str


class PolicyStore:
    """The store of one pool under `root`; nothing is created before the first write."""

    def __init__(self, root: Path, pool: str) -> None:
        if not pool or "/" in pool or pool.startswith("."):
            raise PolicyError("a pool's name must be usable as a folder", value=pool)
        self.pool = pool
        self.folder = root / pool

    def add(self, file: PolicyFile) -> Path:
        """Keep a version. The same content again keeps the first copy, unless that one had no signature.

        PolicyError for another pool's file.
        """
        if file.pool != self.pool:
            raise PolicyError("a file must be of the store's pool", value=file.pool, place=str(self.folder))
        path = self._version_path(file.day, content_hash(file))
        with self._writing():
            kept = parse(path.read_bytes(), place=str(path)) if path.exists() else None
            if kept is None or (kept.envelope is None and file.envelope is not None):
                write_whole(path, to_bytes(file))
        return path

    def versions(self) -> list[Path]:
        """Every kept version, by day."""
        return sorted((self.folder / "versions").glob("*.json"))

    def find(self, wanted: str) -> PolicyFile:
        """The version of a content hash (or its first 8 or more digits). PolicyError if there is not exactly one."""
        digits = wanted.removeprefix("sha256:")
        found = [path for path in self.versions() if path.stem.split("-")[-1].startswith(digits)]
        if len(found) != 1 or len(digits) < 8:
            raise PolicyError("a version must be named by 8 or more digits of its content hash", value=wanted)
        return parse(found[0].read_bytes(), place=str(found[0]))

    def current(self) -> PolicyFile | None:
        """What routers load, None before the first promotion."""
        path = self.folder / "current.json"
        return parse(path.read_bytes(), place=str(path)) if path.exists() else None

    def promote(self, file: PolicyFile, *, at: str, reason: str) -> Move:
        """Make a kept version current. PolicyError while the store is frozen."""
        frozen = self.frozen()
        if frozen is not None:
            raise PolicyError("a frozen store must not move", value=frozen["reason"], hint="thaw it first")
        return self._move(self.find(content_hash(file)), at=at, action="promote", reason=reason)

    def rollback(self, *, at: str, reason: str, to: str | None = None) -> Move:
        """Make an earlier version current: `to`, or the one before. Allowed while frozen: it is a person's order."""
        moves = self.history()
        if to is None:
            earlier = [move for move in moves if move.content_hash != moves[-1].content_hash]
            if not earlier:
                raise PolicyError("a rollback needs an earlier version", value=len(moves), place=str(self.folder))
            to = earlier[-1].content_hash
        return self._move(self.find(to), at=at, action="rollback", reason=reason)

    def freeze(self, *, at: str, reason: str) -> None:
        """Keep `current` where it is until `thaw`."""
        with self._writing():
            write_whole(self.folder / "frozen.json", canonical_bytes({"at": at, "reason": reason}))

    def thaw(self) -> None:
        """Let `current` move again."""
        with self._writing():
            (self.folder / "frozen.json").unlink(missing_ok=True)

    def frozen(self) -> Mapping[str, Any] | None:
        """{at, reason} while the store is frozen."""
        path = self.folder / "frozen.json"
        return read_object(path) if path.exists() else None

    def history(self) -> list[Move]:
        """Every move of `current`, oldest first."""
        return [Move(**read_object(path)) for path in sorted((self.folder / "history").glob("*.json"))]

    def in_force(self, at: str) -> Move | None:
        """The move that was in force at a time (UTC, same form), None before the first."""
        return next((move for move in reversed(self.history()) if move.at <= at), None)

    def test_day(self, decision_hash: str, day: str) -> Mapping[str, Any] | None:
        """The recorded outcome of a test day for this decision, None if it was never opened for it."""
        path = self._test_path(decision_hash, day)
        return read_object(path) if path.exists() else None

    def record_test_day(self, decision_hash: str, day: str, outcome: Mapping[str, Any]) -> Mapping[str, Any]:
        """Record an outcome; if there is one already, that one stands and is returned."""
        path = self._test_path(decision_hash, day)
        with self._writing():
            if not path.exists():
                write_whole(path, canonical_bytes(outcome))
        return read_object(path)

    def test_openings(self, day: str) -> int:
        """How many different decisions have been judged on a test day."""
        return len(list((self.folder / "test-days" / day).glob("*.json")))

    def _move(self, file: PolicyFile, *, at: str, action: str, reason: str) -> Move:
        with self._writing():
            moves = self.history()
            if moves and at < moves[-1].at:
                raise PolicyError("a move must not lie before the last one", value=at, hint=f"that was {moves[-1].at}")
            number = moves[-1].number + 1 if moves else 1
            move = Move(number, at, action, file.policy_version, content_hash(file), reason)
            write_whole(self.folder / "history" / f"{number:06d}.json", canonical_bytes(asdict(move)))
            self._settle()
        return move

    def _settle(self) -> None:
        """Bring `current` to where the last move wants it."""
        moves = self.history()
        if not moves:
            return
        wanted = self._version_path(moves[-1].policy_version.split("/")[1], moves[-1].content_hash).read_bytes()
        path = self.folder / "current.json"
        if not path.exists() or path.read_bytes() != wanted:
            write_whole(path, wanted)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._settle()
            yield

    def _version_path(self, day: str, full_hash: str) -> Path:
        return self.folder / "versions" / f"{day}-{full_hash.removeprefix('sha256:')}.json"

    def _test_path(self, decision_hash: str, day: str) -> Path:
        return self.folder / "test-days" / day / f"{decision_hash.removeprefix('sha256:')}.json"
