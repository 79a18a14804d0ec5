"""Output lengths: quantiles by SLO class and prompt length, fitted, made to cover, and scored as they ship."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import polars as pl

from features.errors import ModelError
from models import length_table
from models.length_rows import LengthRows, read_lengths
from models.metrics import BoolArray, Coverage, FloatArray, coverage, pinball_loss
from models.portable import LengthTable

LEVELS = (0.5, 0.8, 0.9, 0.95)
MIN_ROWS = 20
MODEL_MIN_ROWS = 200
NEWEST_FRAC = 0.25
"""Share of the rows, the newest, that sets the offsets."""


@dataclass(frozen=True, slots=True)
class LengthScore:
    """One class (`*` = every row) at one level. `reserve_ratio` = Σ predicted / Σ actual tokens."""

    slo_class: str
    level: float
    rows: int
    censored_frac: float
    pinball_tokens: float
    coverage: Coverage
    reserve_ratio: float


@dataclass(frozen=True, slots=True)
class LengthFit:
    """A table with how it was found.

    `rows` = requests used, of which `censored` were cut off by their limit; `excluded` did not finish. `scores` are of
    the table on the rows that set its offsets (on all rows if `method` is `empirical`): `score_length` on later days is
    the figure to believe.
    """

    table: LengthTable
    method: Literal["lightgbm", "empirical"]
    rows: int
    excluded: int
    censored: int
    offset_rows: int
    scores: tuple[LengthScore, ...]


def fit_length(table: pl.DataFrame, *, levels: Sequence[float] = LEVELS, seed: int) -> LengthFit:
    """Fits a length table from one row a request (columns: `models.length_rows`).

    The older three quarters train LightGBM quantiles of log tokens, the newest quarter sets the offsets; under
    200 rows: plain quantiles. ModelError: fewer than 20 finished requests, levels that do not ascend inside (0, 1).
    """
    if not levels or levels[0] <= 0.0 or levels[-1] >= 1.0 or any(b <= a for a, b in pairwise(levels)):
        raise ModelError("levels must ascend inside (0, 1)", value=tuple(levels))
    rows = read_lengths(table)
    count = rows.log_output.size
    if count < MIN_ROWS:
        raise ModelError(
            f"`lengths` must have at least {MIN_ROWS} finished requests",
            value=f"{count} finished, {rows.excluded} not",
            place="lengths",
            hint="needs request logs with prompt_tokens and output_tokens",
        )
    older = count - int(count * NEWEST_FRAC)
    newest = rows.part(slice(older, count))
    if count < MODEL_MIN_ROWS:
        found, newest = length_table.empirical(rows, levels), rows
    else:
        found = length_table.distilled(rows.part(slice(0, older)), newest, levels, seed=seed)
    return LengthFit(
        table=found,
        method="empirical" if count < MODEL_MIN_ROWS else "lightgbm",
        rows=count,
        excluded=rows.excluded,
        censored=int(np.count_nonzero(rows.censored)),
        offset_rows=0 if count < MODEL_MIN_ROWS else int(newest.log_output.size),
        scores=_score(found, newest),
    )


def score_length(law: LengthTable, table: pl.DataFrame) -> tuple[LengthScore, ...]:
    """Scores of a table on requests, by class (sorted, `*` first) and level; empty without finished requests.

    A request that its limit cut off counts with the length it reached. ModelError if a column is missing or damaged.
    """
    return _score(law, read_lengths(table))


def _score(law: LengthTable, rows: LengthRows) -> tuple[LengthScore, ...]:
    actual = np.rint(np.exp(rows.log_output))
    names = [rows.classes[at] if at >= 0 else "*" for at in rows.slo_class.tolist()]
    everyone = np.ones(actual.size, dtype=np.bool_)
    groups: dict[str, BoolArray] = {
        "*": everyone,
        **{name: rows.slo_class == at for at, name in enumerate(rows.classes)},
    }
    scores = []
    for level in law.levels:
        asked = zip(names, rows.prompt_tokens.tolist(), strict=True)
        predicted = np.array([law.quantile(name, prompt, level) for name, prompt in asked])
        for name, members in groups.items():
            if members.any():
                scores.append(_of_group(name, level, rows, members, actual, predicted))
    return tuple(sorted(scores, key=lambda score: (score.slo_class != "*", score.slo_class, score.level)))


def _of_group(
    name: str, level: float, rows: LengthRows, members: BoolArray, actual: FloatArray, predicted: FloatArray
) -> LengthScore:
    y, q = actual[members], predicted[members]
    return LengthScore(
        slo_class=name,
        level=level,
        rows=int(y.size),
        censored_frac=float(np.mean(rows.censored[members])),
        pinball_tokens=pinball_loss(y, q, level=level),
        coverage=coverage(y, q),
        reserve_ratio=float(np.sum(q) / np.sum(y)),
    )
