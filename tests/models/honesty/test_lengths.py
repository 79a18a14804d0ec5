"""Coverage of lengths: by class, app and hour, with answers that have whole tokens."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from models.honesty.lengths import Expected, follow, length_readings, pinball_rows, suffix
from models.honesty.reading import Reading
from tests.models.honesty.days import day
from tests.models.honesty.laws import pool

LAW = pool().length


def by_key(found: list[Reading]) -> dict[tuple[str, str], Reading]:
    keyed = {(r.group, r.measure): r for r in found}
    assert len(keyed) == len(found)
    return keyed


def test_groups_and_measures() -> None:
    found = by_key(length_readings(follow(LAW, day(pool(), 1).lengths)))
    assert {group for group, _ in found if "@" not in group} == {"*", "chat", "chat/a", "chat/b"}
    assert len({group for group, _ in found if "@" in group}) == 24
    whole = found["*", "coverage_q90"]
    assert (whole.expected, whole.bar, whole.rows) == (0.9, 0.03, 1600)
    assert whole.low is not None
    assert whole.high is not None
    assert whole.low < whole.value < whole.high
    assert found["*", "coverage_q99"].bar is None
    assert found["*", "reserved_q90"].value > 1.0
    assert 0.0 <= found["*", "kupiec_q90"].value <= 1.0
    assert found["*@07h", "coverage_q90"].p is None


def test_few_rows_have_no_group_of_their_own() -> None:
    frame = day(pool(), 1).lengths
    some = pl.concat([frame.filter(pl.col("app") == "a"), frame.filter(pl.col("app") == "b").head(10)])
    groups = {group for group, _ in by_key(length_readings(follow(LAW, some)))}
    assert "chat/a" in groups
    assert "chat/b" not in groups
    assert length_readings(follow(LAW, frame.head(0))) == []


def test_answers_of_one_length_are_no_miss() -> None:
    """All of 150 tokens: each is within its median, as it should be, and no quantile could do better."""
    frame = day(pool(), 1).lengths.with_columns(output_tokens=pl.lit(150))
    law = LAW
    found = follow(law, frame)
    still = Expected(
        found.levels, np.full_like(found.followed, 150.0), found.frozen, found.output, found.arrived_at_us,
        found.app,
    )  # fmt: skip
    read = by_key(length_readings(still))
    assert read["*", "coverage_q50"].value == 1.0
    assert read["*", "coverage_q50"].p == 1.0


def test_offsets_that_stand_still_are_shown() -> None:
    longer = day(pool(), 1).lengths.with_columns(output_tokens=pl.col("output_tokens") * 3)
    found = by_key(length_readings(follow(LAW, longer)))
    frozen = found["*", "frozen_coverage_q90"]
    assert frozen.value < 0.4
    assert frozen.p is not None
    assert frozen.p < 1e-9
    assert found["*", "coverage_q90"].value > 0.7  # the offsets follow


def test_losses_are_by_the_mean_answer() -> None:
    found = follow(LAW, day(pool(), 1).lengths)
    double = Expected(found.levels, 2 * found.followed, found.frozen, 2 * found.output, found.arrived_at_us, found.app)
    assert pinball_rows(double).mean() == pytest.approx(pinball_rows(found).mean())
    assert [suffix(level) for level in (0.5, 0.9, 0.995)] == ["q50", "q90", "q99.5"]


def test_a_day_holds_answers_with_a_length_only() -> None:
    """A request without a class is of the default one. Cancelled answers tell no length, cut off ones do."""
    frame = (
        day(pool(), 1)
        .lengths.head(4)
        .with_columns(
            slo_class=pl.Series([None, "chat", "chat", "chat"]),
            censored=pl.Series([False, True, True, False]),
            max_output_tokens=pl.Series([None, 1, 10**6, None], dtype=pl.Int64),
        )
    )
    found = follow(LAW, frame)
    assert sorted({name.partition("/")[0] for name in found.app}) == ["chat", "default"]
    assert len(found.output) == 3
    assert 1.0 in found.output.tolist()
