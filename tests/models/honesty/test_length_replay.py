"""A day under a length law: what `LengthTracker` gives, fed in the order of time."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from models.honesty.length_replay import NUMBERS, TEXTS, answers, follow
from models.portable.length import Arrival, LengthLaw
from models.portable.length_online import LengthTracker
from tests.models.honesty.laws import random_length_law


def day(rng: np.random.Generator, rows: int = 300) -> pl.DataFrame:
    """Answers of several classes and apps; times on a coarse grid, so that arrivals and ends coincide."""
    arrived = rng.integers(0, 100, rows)
    frame = pl.DataFrame({
        "arrived_at_us": arrived,
        "ended_at_us": arrived + rng.integers(1, 20, rows),
        "slo_class": rng.choice(["chat", "code", "odd"], rows),
        **{name: rng.choice(["a", "b"], rows) for name in TEXTS},
        "prompt_tokens": rng.integers(1, 2000, rows),
        "output_tokens": rng.integers(1, 500, rows),
        "max_output_tokens": rng.integers(50, 400, rows),
        **{name: rng.uniform(0.0, 8.0, rows) for name in NUMBERS if name not in ("max_output_tokens", "cached_frac")},
        "cached_frac": rng.uniform(0.0, 1.0, rows),
    })  # fmt: skip
    gone = [
        pl.when(pl.Series(rng.uniform(size=rows) < 0.7)).then(pl.col(name)).alias(name)
        for name in ("ended_at_us", "slo_class", *TEXTS, *NUMBERS)
    ]
    return frame.with_columns(gone)


def tracked(law: LengthLaw, frame: pl.DataFrame) -> np.ndarray:
    """The same in plain Python."""
    tracker, rows = LengthTracker(law), list(answers(frame).iter_rows(named=True))
    fields = ("slo_class", "prompt_tokens", *TEXTS, *NUMBERS)
    arrivals = [Arrival(**{name: row[name] for name in fields}) for row in rows]
    events = [(row["arrived_at_us"], 0, at) for at, row in enumerate(rows)]
    events += [(row["ended_at_us"], 1, at) for at, row in enumerate(rows) if row["ended_at_us"] is not None]
    found: list[tuple[float, ...]] = [()] * len(rows)
    for _, kind, at in sorted(events):
        if kind:
            tracker.observe(arrivals[at], rows[at]["output_tokens"])
        else:
            found[at] = tracker.quantiles(arrivals[at])
    return np.array(found)


@pytest.mark.parametrize("seed", range(4))
def test_a_day_is_what_the_tracker_gives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    law, frame = random_length_law(rng), day(rng)
    found = follow(law, frame)
    np.testing.assert_array_equal(found.followed, tracked(law, frame))
    assert set(found.group) <= set(law.offset)
    assert not np.array_equal(found.followed, found.frozen)


def test_a_day_without_what_is_optional() -> None:
    rng = np.random.default_rng(9)
    law = random_length_law(rng)
    frame = day(rng).drop(*TEXTS, *NUMBERS)
    found = follow(law, frame)
    np.testing.assert_array_equal(found.followed, tracked(law, frame))
    assert found.app[0] in {"chat", "code", "odd", "default"}
    assert follow(law, frame.head(0)).followed.shape == (0, 3)
