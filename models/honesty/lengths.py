"""Lengths: were as many answers within their quantiles as the levels say?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from features.naming import DEFAULT_CLASS
from models.honesty.backtests import christoffersen, kupiec
from models.honesty.blocks import estimate, mean
from models.honesty.reading import ALL, Reading, known
from models.length.online import base_tokens, frozen_quantiles, online_quantiles
from models.length.rows import read_lengths
from models.metrics import BoolArray, FloatArray, pinball_loss, wilson
from models.portable.length import LengthLaw

LENGTH = "length"
MARGIN = {0.9: 0.03, 0.5: 0.05}
"""Level -> how far a group's coverage may lie from it before it matters."""
FROZEN_MARGIN = {0.9: 0.1}
"""The same for offsets that stand still. They need not be right every day, but far off the law is of other traffic."""
MIN_ROWS = 50
_HOUR_US = 3_600_000_000.0


@dataclass(frozen=True, slots=True)
class Expected:
    """Quantiles of n answers, in order of arrival. `followed`, `frozen`: shape (n, levels), with offsets that follow
    the day's answers and with those of the law. `app`: `<class>/<app>`, or the class without one.
    """

    levels: tuple[float, ...]
    followed: FloatArray
    frozen: FloatArray
    output: FloatArray
    arrived_at_us: FloatArray
    app: tuple[str, ...]


def follow(law: LengthLaw, frame: pl.DataFrame) -> Expected:
    """What a router that follows a day's answers would have expected of each at its arrival (columns:
    `models.length.rows`). ModelError if a column is missing or damaged.
    """
    rows = read_lengths(frame.with_columns(pl.col("slo_class").cast(pl.String).fill_null(DEFAULT_CLASS)))
    base = base_tokens(law, rows)
    keys, _, place = rows.keys()
    return Expected(
        levels=law.levels,
        followed=online_quantiles(law, rows, base),
        frozen=frozen_quantiles(law, rows, base),
        output=rows.output,
        arrived_at_us=rows.column("arrived_at_us"),
        app=tuple(keys[at] for at in place.tolist()),
    )


def length_readings(expected: Expected) -> list[Reading]:
    """Coverage, pinball loss and tests of independence: of all answers, by class, by class × app, by hour (UTC)."""
    if not len(expected.output):
        return []
    found = list(_group(expected, ALL, np.ones(len(expected.output), np.bool_)))
    classes = np.array([name.partition("/")[0] for name in expected.app])
    apps = np.array(expected.app)
    for name in sorted({*classes.tolist(), *expected.app}):
        rows = (apps == name) if "/" in name else (classes == name)
        if np.count_nonzero(rows) >= MIN_ROWS:
            found += _group(expected, name, rows)
    hours = (expected.arrived_at_us // _HOUR_US % 24.0).astype(np.int64)
    for hour in np.unique(hours).tolist():
        rows = hours == hour
        if np.count_nonzero(rows) >= MIN_ROWS:
            found += _hour(expected, f"{ALL}@{hour:02d}h", rows)
    return found


def pinball_rows(expected: Expected) -> FloatArray:
    """Pinball loss of each answer, mean over the levels, by the day's mean answer: shape (rows,)."""
    total = np.zeros(len(expected.output))
    for k, level in enumerate(expected.levels):
        above = expected.output - expected.followed[:, k]
        total += np.maximum(level * above, (level - 1.0) * above)
    found: FloatArray = total / len(expected.levels) / max(1.0, float(np.mean(expected.output)))
    return found


def suffix(level: float) -> str:
    """A level in the name of a measure: 0.9 -> q90, 0.995 -> q99.5."""
    return f"q{100 * level:g}"


def _group(expected: Expected, group: str, rows: BoolArray) -> Iterator[Reading]:
    output = expected.output[rows]
    for k, level in enumerate(expected.levels):
        name, quantile = suffix(level), expected.followed[rows, k]
        missed = output > quantile
        yield _share(group, f"coverage_{name}", output, quantile, level, MARGIN.get(level))
        yield _share(
            group, f"frozen_coverage_{name}", output, expected.frozen[rows, k], level, FROZEN_MARGIN.get(level)
        )
        yield Reading(LENGTH, group, f"pinball_{name}", pinball_loss(output, quantile, level=level), len(output))
        yield Reading(
            LENGTH, group, f"reserved_{name}", float(quantile.mean()) / max(1.0, float(output.mean())), len(output)
        )
        for test, p in (("kupiec", kupiec(missed, level)), ("christoffersen", christoffersen(missed))):
            if p is not None:
                yield Reading(LENGTH, group, f"{test}_{name}", p, len(output))


def _share(
    group: str, measure: str, output: FloatArray, quantile: FloatArray, level: float, bar: float | None
) -> Reading:
    """Share of answers within a quantile. Where many are equal to it (answers have whole tokens), its level may lie
    anywhere between the share below it and the share within it.
    """
    covered = (output <= quantile).astype(np.float64)
    share = estimate(covered, mean, least_error=math.sqrt(level * (1.0 - level) / len(output)))
    interval = wilson(int(covered.sum()), len(output))
    fits = float(np.mean(output < quantile)) <= level <= share.value
    p = None if bar is None else 1.0 if fits else share.beyond(level, bar)
    return Reading(
        LENGTH, group, measure, share.value, len(output), interval.low_frac, interval.high_frac, level, bar, p
    )


def _hour(expected: Expected, group: str, rows: BoolArray) -> Iterator[Reading]:
    for k, level in enumerate(expected.levels):
        covered = expected.output[rows] <= expected.followed[rows, k]
        share = wilson(int(np.count_nonzero(covered)), int(covered.size))
        yield Reading(
            LENGTH, group, f"coverage_{suffix(level)}", share.covered_frac, int(covered.size), known(share.low_frac),
            known(share.high_frac), level,
        )  # fmt: skip
