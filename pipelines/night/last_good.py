"""The estimators of a pool's nights, one file a day: what a night may fall back on. Only earlier days count, so a night
that is repeated meets the same ones again.

    <runs>/estimators/<pool>/<day>.json    {days: estimator -> day of the night that fitted it, estimators}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from features.errors import ModelError
from features.files import write_whole
from features.lake import check_pool_name
from models.honesty.gate import LastGood
from models.honesty.reading import ESTIMATORS
from models.portable_json import from_dict, to_dict
from policies.canonical import sha256


@dataclass(frozen=True, slots=True)
class Kept:
    """Estimators of an earlier night, and the digest of their file."""

    day: date
    last: LastGood
    digest: str


@dataclass(frozen=True, slots=True)
class EstimatorStore:
    """The files of one pool under `runs`; nothing is made before the first one."""

    runs: Path
    pool: str

    @property
    def folder(self) -> Path:
        """Where they lie."""
        return self.runs / "estimators" / check_pool_name(self.pool)

    def keep(self, day: date, good: LastGood) -> Path:
        """Write a night's file, whole or not at all; a repeated night writes it again."""
        path = self.folder / f"{day.isoformat()}.json"
        value = {"days": dict(good.days), "estimators": to_dict(good.estimators)}
        write_whole(path, json.dumps(value, sort_keys=True, allow_nan=False).encode())
        return path

    def before(self, day: date, *, not_before: date) -> Kept | None:
        """The newest file of a day before `day` and not before `not_before` that this version can read, or None."""
        return self.search(day, not_before=not_before)[0]

    def search(self, day: date, *, not_before: date) -> tuple[Kept | None, tuple[str, ...]]:
        """`before`, and a note about every newer file that was passed over because it cannot be read."""
        notes: list[str] = []
        for path in sorted(self.folder.glob("????-??-??.json"), reverse=True):
            if not_before.isoformat() <= path.stem < day.isoformat():
                try:
                    content = path.read_bytes()
                    return Kept(date.fromisoformat(path.stem), _parsed(content), sha256(content)), tuple(notes)
                except (ModelError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                    notes.append(f"Earlier estimators are passed over: {path} cannot be read ({_why(error)}).")
        return None, tuple(notes)


def _parsed(content: bytes) -> LastGood:
    """ModelError, ValueError, KeyError, TypeError or RecursionError for another version's form, or half a file."""
    value = json.loads(content)
    return LastGood(from_dict(value["estimators"]), {name: str(value["days"][name]) for name in ESTIMATORS})


def _why(error: Exception) -> str:
    """One line for people."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error) if isinstance(error, ModelError) else "no whole file of this version"
