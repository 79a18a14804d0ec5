"""A night's progress on stderr: a line a stage that is rewritten on a terminal, and told now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType

from pipelines.console import plain
from pipelines.night.progress import progress_text

EVERY_S = 30.0


class StageLines:
    """Is told where a night is, as `pipelines.night.progress.Progress`. `before`: what every line begins with.

    A context manager: what is written after it begins a line, also after an error.
    """

    def __init__(self, before: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._before = plain(before)
        self._clock = clock
        self._terminal = sys.stderr.isatty()
        self._stage = ""
        self._began_s = self._said_s = 0.0
        self._width = 0

    def __enter__(self) -> StageLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._next_line()

    def __call__(self, stage: str, done: int, total: int, best: float | None) -> None:
        """Where the night is."""
        now_s = self._clock()
        begins = stage != self._stage
        if begins:
            self._next_line()
            self._stage, self._began_s, self._said_s = stage, now_s, now_s
        text = progress_text(done, total, best, now_s - self._began_s)
        line = f"{self._before}{stage}: {text}" if text else f"{self._before}{stage}"
        if self._terminal:
            # A line that is wider than the terminal could not be written over.
            line = line[: shutil.get_terminal_size().columns - 1]
            sys.stderr.write(f"\r{line.ljust(self._width)}")
            self._width = len(line)
        elif begins or now_s - self._said_s >= EVERY_S:
            self._said_s = now_s
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def _next_line(self) -> None:
        if self._terminal and self._width:
            sys.stderr.write("\n")
        self._width = 0
