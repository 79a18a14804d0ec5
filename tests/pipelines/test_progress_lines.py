"""Progress on stderr: few lines in a file, one line a stage on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from pipelines.commands.progress import StageLines


class Terminal(io.StringIO):
    """A stream that is one."""

    def isatty(self) -> bool:
        return True


def told(lines: StageLines, clock: list[float]) -> None:
    with lines as progress:
        progress("fit", 0, 0, None)
        progress("search", 0, 100, None)
        for done in range(1, 51):
            clock[0] += 1.0
            progress("search", done, 100, None if done < 8 else 0.875)


def test_a_file_gets_a_line_a_stage_and_one_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, clock = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stderr", stream)
    told(StageLines("chat 2026-11-03: ", lambda: clock[0]), clock)
    assert stream.getvalue().splitlines() == [
        "chat 2026-11-03: fit",
        "chat 2026-11-03: search: at most 100 replays",
        "chat 2026-11-03: search: 30 of at most 100 replays, best so far 87.5% softened goodput, at most 70 s left",
    ]


def test_a_terminals_line_is_written_over_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream, clock = Terminal(), [0.0]
    monkeypatch.setattr(sys, "stderr", stream)
    told(StageLines("  ", lambda: clock[0]), clock)
    assert stream.getvalue().count("\n") == 2
    assert stream.getvalue().endswith("\n")
    last = stream.getvalue().rstrip("\n").rsplit("\r", maxsplit=1)[-1]
    assert last == "  search: 50 of at most 100 replays, best so far 87.5% softened goodput, at most 50 s left"[:59]


def test_a_stage_that_fails_ends_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)

    def fails() -> None:
        with StageLines("") as progress:
            progress("fit", 0, 0, None)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fails()
    assert stream.getvalue() == "\rfit\n"
