"""What a night says of how far it is."""

from __future__ import annotations

import math

import pytest

from pipelines.night.progress import Stage, progress_text


@pytest.mark.parametrize(
    ("done", "total", "best", "elapsed_s", "text"),
    [
        (0, 0, None, 0.0, ""),
        (0, 840, None, 0.0, "at most 840 replays"),
        (12, 0, None, 5.0, "12 replays"),
        (4, 840, None, 4.0, "4 of at most 840 replays"),
        (5, 840, None, 5.0, "5 of at most 840 replays, at most 14 min left"),
        (800, 840, 0.9126, 400.0, "800 of at most 840 replays, best so far 91.3% softened goodput, at most 20 s left"),
        (
            10,
            1010,
            0.5,
            150.0,
            "10 of at most 1010 replays, best so far 50.0% softened goodput, at most 4 h 10 min left",
        ),
        (840, 840, None, 400.0, "840 of at most 840 replays"),
    ],
)
def test_the_text(done: int, total: int, best: float | None, elapsed_s: float, text: str) -> None:
    assert progress_text(done, total, best, elapsed_s) == text


def test_a_stage_counts_and_a_search_that_ends_early_has_less_left() -> None:
    told: list[tuple[str, int, int, float | None]] = []
    stage = Stage("search", lambda *now: told.append(now), 100)
    stage.tell()
    stage.step()
    stage.reached(40, -math.inf)
    stage.step()
    stage.reached(20, 0.9)
    assert told == [
        ("search", 0, 100, None),
        ("search", 1, 100, None),
        ("search", 1, 41, None),
        ("search", 2, 41, None),
        ("search", 2, 22, 0.9),
    ]
