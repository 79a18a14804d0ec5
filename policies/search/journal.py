"""The search's memory on disk: JSON lines, a header and then one line a finished trial, in order.

A killed search leaves at worst half a line at the end, which is dropped. The journal belongs to one search: a header
that differs (other inputs, seed, space or budget) is refused, since its trials would mean something else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from features.errors import PolicyError
from policies.search.trials import Score, Trial


class Journal:
    """Trials that are finished, kept in `path`; `path` None keeps them in memory only."""

    def __init__(self, path: Path | None, header: Mapping[str, Any]) -> None:
        self._path = path
        self._head = _line({"search": dict(header)})
        self.trials: list[Trial] = []
        if path is not None:
            self._open(path)

    def _open(self, path: Path) -> None:
        whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        if not whole:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self._head)
            return
        if whole[0] + b"\n" != self._head:
            raise PolicyError(
                "a journal continues only the search that began it",
                place=str(path),
                hint="delete it, or give the new search another path",
            )
        self.trials = [_trial(json.loads(line)) for line in whole[1:]]
        numbers = [t.number for t in self.trials]
        if numbers != list(range(len(numbers))):
            raise PolicyError("trials in a journal count up from 0", value=numbers[-1], place=str(path))
        os.truncate(path, sum(len(line) + 1 for line in whole))

    def add(self, trial: Trial) -> None:
        """Keep one more trial; it is on disk when this returns."""
        self.trials.append(trial)
        if self._path is None:
            return
        row = {"trial": trial.number, "point": dict(trial.point), **asdict(trial.score)}
        with self._path.open("ab") as file:
            file.write(_line(row))
            file.flush()
            os.fsync(file.fileno())


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _trial(row: Mapping[str, Any]) -> Trial:
    numbers = {name: row[name] for name in ("value", "whole", "goodput_frac", "ttft_p99_ms", "moved_bytes")}
    score = Score(slices=tuple(row["slices"]), classes=tuple(row["classes"]), **numbers)
    return Trial(int(row["trial"]), row["point"], score)
