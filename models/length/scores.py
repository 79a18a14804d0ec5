"""Scores of a length law as it ships: table, offsets and the online rule, run over later requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from models.length.online import online_quantiles
from models.length.rows import LengthRows, read_lengths
from models.metrics import BoolArray, Coverage, FloatArray, coverage, pinball_loss
from models.portable.length import ALL, LengthLaw

LEAST_ROWS = 50
"""Rows that a class with app must have for scores of its own."""
BLOCK_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class LengthScore:
    """One group of requests at one level. `slo_class`: `*` = every row, a class, or `<class>/<app>`.

    `reserve_ratio` = Σ predicted / Σ actual tokens. `crps_tokens`: of all levels together, the same at each of them.
    `kupiec_p`, `christoffersen_p`: see `kupiec` and `christoffersen`. `block_us`: start of a time block of `*`, None =
    all times.
    """

    slo_class: str
    level: float
    rows: int
    censored_frac: float
    pinball_tokens: float
    crps_tokens: float
    coverage: Coverage
    reserve_ratio: float
    kupiec_p: float
    christoffersen_p: float
    block_us: int | None = None


def score_length(law: LengthLaw, table: pl.DataFrame) -> tuple[LengthScore, ...]:
    """Scores of a law on requests, by group (sorted, `*` first) and level; empty without finished requests.

    A request that its limit cut off counts with the length it reached. Classes with app count from LEAST_ROWS rows on.
    ModelError if a column is missing or damaged.
    """
    return score_rows(law, read_lengths(table))


def score_blocks(law: LengthLaw, table: pl.DataFrame, *, block_us: int = BLOCK_US) -> tuple[LengthScore, ...]:
    """Scores of all requests by time block of arrival and level, in order of time."""
    rows = read_lengths(table)
    found = online_quantiles(law, rows)
    block = rows.frame["arrived_at_us"].to_numpy() // block_us
    return tuple(
        _score(ALL, at, law.levels, rows, block == start, found, block_us=int(start) * block_us)
        for start in np.unique(block)
        for at in range(len(law.levels))
    )


def score_rows(law: LengthLaw, rows: LengthRows) -> tuple[LengthScore, ...]:
    """`score_length` of rows that are read already."""
    if not rows.count:
        return ()
    found = online_quantiles(law, rows)
    keys, classes, place = rows.keys()
    of_class = np.array(classes)[place]
    groups: dict[str, BoolArray] = {ALL: np.ones(rows.count, dtype=np.bool_)}
    groups |= {name: of_class == name for name in sorted(set(classes) - {ALL})}
    for at, key in enumerate(keys):
        if key not in groups and np.count_nonzero(place == at) >= LEAST_ROWS:
            groups[key] = place == at
    named = [(ALL, groups.pop(ALL)), *sorted(groups.items())]
    return tuple(
        _score(name, at, law.levels, rows, members, found) for name, members in named for at in range(len(law.levels))
    )


def crps(true: FloatArray, quantiles: FloatArray, levels: Sequence[float]) -> float:
    """Mean CRPS estimated from quantiles, shape (n, levels): twice the mean pinball loss over the levels.

    See Jordan, Krüger & Lerch (2019). Comparable between methods at the same levels only.
    """
    losses = [pinball_loss(true, quantiles[:, at], level=level) for at, level in enumerate(levels)]
    return 2.0 * sum(losses) / len(losses)


def kupiec(misses: int, count: int, *, expected_frac: float) -> float:
    """p-value of the share of misses being the expected one: likelihood ratio, χ² of one degree (Kupiec 1995)."""
    ratio = 2.0 * (_likelihood(misses, count, misses / count) - _likelihood(misses, count, expected_frac))
    return _chi2_above(ratio)


def christoffersen(missed: BoolArray) -> float:
    """p-value of a miss being as likely after a miss as after none: χ² of one degree (Christoffersen 1998).

    `missed`: shape (n,), in order of time. 1 where there is no pair to tell from.
    """
    before, after = missed[:-1], missed[1:]
    calm, calm_missed = int(np.count_nonzero(~before)), int(np.count_nonzero(~before & after))
    hit, hit_missed = int(np.count_nonzero(before)), int(np.count_nonzero(before & after))
    if not calm or not hit:
        return 1.0
    apart = _likelihood(calm_missed, calm, calm_missed / calm) + _likelihood(hit_missed, hit, hit_missed / hit)
    alike = (calm_missed + hit_missed) / (calm + hit)
    return _chi2_above(2.0 * (apart - _likelihood(calm_missed + hit_missed, calm + hit, alike)))


def _score(
    name: str,
    at: int,
    levels: tuple[float, ...],
    rows: LengthRows,
    members: BoolArray,
    found: FloatArray,
    *,
    block_us: int | None = None,
) -> LengthScore:
    y, quantiles, level = rows.output[members], found[members], levels[at]
    q = quantiles[:, at]
    missed = y > q
    return LengthScore(
        slo_class=name,
        level=level,
        rows=int(y.size),
        censored_frac=float(np.mean(rows.censored[members])),
        pinball_tokens=pinball_loss(y, q, level=level),
        crps_tokens=crps(y, quantiles, levels),
        coverage=coverage(y, q),
        reserve_ratio=float(np.sum(q) / max(1.0, float(np.sum(y)))),
        kupiec_p=kupiec(int(np.count_nonzero(missed)), int(y.size), expected_frac=1.0 - level),
        christoffersen_p=christoffersen(missed),
        block_us=block_us,
    )


def _likelihood(hits: int, count: int, share: float) -> float:
    """Log-likelihood of `hits` of `count` draws, each with probability `share`."""
    found = 0.0
    if hits:
        found += hits * math.log(share)
    if count - hits:
        found += (count - hits) * math.log(1.0 - share)
    return found


def _chi2_above(ratio: float) -> float:
    """P(χ² of one degree > ratio)."""
    return math.erfc(math.sqrt(max(0.0, ratio) / 2.0))
