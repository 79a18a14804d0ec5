"""Output lengths: LightGBM quantiles, distilled into a table that ships, with offsets from the newest answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import polars as pl

from features.errors import ModelError
from models.length.boost import fit_quantiles
from models.length.distil import distil
from models.length.full import FullModel, full_model
from models.length.inputs import Names, group_places, input_matrix, learn_names, rounded
from models.length.offsets import conformal_offsets, paces, upper_quantiles
from models.length.online import base_tokens, frozen_quantiles
from models.length.rows import LengthRows, check_levels, read_lengths, spread
from models.length.scores import LengthScore, score_rows
from models.metrics import FloatArray, IntArray, pinball_loss
from models.portable.length import INPUTS, LengthLaw
from models.portable.trees import Trees

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
MIN_ROWS = 20
MODEL_MIN_ROWS = 200
NEWEST_FRAC = 0.15
"""Share of the rows, the newest, that sets the offsets."""
TRAIN_ROWS, TRAIN_LEAST = 200_000, 2_000
"""Rows that train the model, at most: of a longer log, every k-th of each class and app, at least so many of each."""
DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class LengthFit:
    """A law with how it was found.

    `rows` = requests used, of which `censored` were cut off by their limit; `excluded` did not finish. `scores` are of
    the law, online, on the rows that set its offsets (on all rows if `method` is `empirical`): `score_length` on later
    days is the figure to believe. `full_pinball`, `shipped_pinball`: pinball loss by level on those rows, in tokens, of
    the LightGBM model and of the table distilled from it, both with their own offsets: what distilling costs.
    """

    law: LengthLaw
    method: Literal["lightgbm", "empirical"]
    rows: int
    excluded: int
    censored: int
    trained_rows: int
    offset_rows: int
    full_pinball: tuple[float, ...]
    shipped_pinball: tuple[float, ...]
    scores: tuple[LengthScore, ...]
    full: FullModel | None = field(default=None, compare=False, repr=False)


def fit_length(table: pl.DataFrame, *, levels: Sequence[float] = LEVELS, seed: int) -> LengthFit:
    """Fits a length law from one row a request (columns: `models.length.rows`).

    The older rows train LightGBM quantiles of log tokens, the newest set the offsets; under 200 rows: plain quantiles.
    ModelError: fewer than 20 finished requests, levels that do not ascend inside (0, 1).
    """
    wanted = check_levels(levels)
    rows = read_lengths(table)
    if rows.count < MIN_ROWS:
        raise ModelError(
            f"`lengths` must have at least {MIN_ROWS} finished requests",
            value=f"{rows.count} finished, {rows.excluded} not",
            place="lengths",
            hint="needs request logs with prompt_tokens and output_tokens",
        )
    older = rows.count - int(rows.count * NEWEST_FRAC)
    small = rows.count < MODEL_MIN_ROWS
    train = rows if small else _sample(rows, 0, older)
    newest = rows if small else _sample(rows, older, rows.count)
    # Of all rows: an app that is new in the newest ones has a group, and its offset says what the model does not know.
    names = learn_names(rows if small else _sample(rows, 0, rows.count))
    full = None
    tree, leaves = _one_row(train, wanted)
    if not small:
        x = _train_inputs(train, names)
        model = fit_quantiles(x, train.log_output, wanted, seed=seed)
        tree, leaves = distil(model, x, seed=seed)
        full = full_model(model, names, newest)
    law = _law(names, wanted, tree, leaves, newest)
    shipped = frozen_quantiles(law, newest)
    return LengthFit(
        law=law,
        method="empirical" if full is None else "lightgbm",
        rows=rows.count,
        excluded=rows.excluded,
        censored=int(np.count_nonzero(rows.censored)),
        trained_rows=train.count,
        offset_rows=0 if full is None else newest.count,
        full_pinball=_pinball(newest, shipped if full is None else full.quantiles(newest), wanted),
        shipped_pinball=_pinball(newest, shipped, wanted),
        scores=score_rows(law, newest),
        full=full,
    )


@dataclass(frozen=True, slots=True)
class LengthRefit:
    """A law's rows, for what it would be had other ones been logged. Its groups and its table stay, for growing the
    table is most of a fit; offsets, paces and where trackers start are found again. A table of one row is, too.
    """

    law: LengthLaw
    rows: LengthRows
    names: Names

    @classmethod
    def of(cls, law: LengthLaw, table: pl.DataFrame) -> LengthRefit:
        """`table`: what `fit_length` made `law` of. ModelError if it is another one."""
        rows = read_lengths(table)
        names = learn_names(rows if rows.count < MODEL_MIN_ROWS else _sample(rows, 0, rows.count))
        if dict(names.group_level) != dict(law.group_level):
            raise ModelError("a law must be fitted again on its own rows", value=len(names.groups), place="lengths")
        return cls(law, rows, names)

    def refitted(self, drawn: IntArray) -> LengthLaw:
        """`drawn`: places in `rows`, ascending in time; a place may stand there more than once.

        ModelError if there are fewer than 20.
        """
        rows = self.rows.at(drawn)
        if rows.count < MIN_ROWS:
            raise ModelError(f"a draw must have at least {MIN_ROWS} requests", value=rows.count, place="lengths")
        if self.rows.count < MODEL_MIN_ROWS:
            table, leaves = _one_row(rows, self.law.levels)
            return _law(self.names, self.law.levels, table, leaves, rows)
        newest = _sample(rows, rows.count - int(rows.count * NEWEST_FRAC), rows.count)
        return _law(self.names, self.law.levels, self.law.table, self.law.rows, newest)


def _sample(rows: LengthRows, start: int, end: int) -> LengthRows:
    part = rows.at(np.arange(start, end))
    if part.count <= TRAIN_ROWS:
        return part
    return part.at(spread(part.keys()[2], TRAIN_ROWS, TRAIN_LEAST))


def _train_inputs(rows: LengthRows, names: Names) -> FloatArray:
    """Inputs of the rows that train. The hour is left out of a history of less than two days: it would only be time."""
    x = input_matrix(rows, names)
    arrived = rows.frame["arrived_at_us"].to_numpy()
    if arrived[-1] - arrived[0] < 2 * DAY_US:
        x[:, INPUTS.index("hour")] = np.nan
    return x


def _one_row(rows: LengthRows, levels: tuple[float, ...]) -> tuple[Trees, tuple[tuple[float, ...], ...]]:
    """A table of one row: quantiles of the observed lengths."""
    y = np.repeat(rows.log_output[:, None], len(levels), axis=1)
    row = tuple(rounded(value) for value in np.exp(upper_quantiles(y, levels)).tolist())
    return Trees((0,), (-1,), (0.0,), (0,), (0,), (0.0,)), (row,)


def _law(
    names: Names, levels: tuple[float, ...], table: Trees, rows: tuple[tuple[float, ...], ...], newest: LengthRows
) -> LengthLaw:
    """The table with offsets and paces that the newest answers ask for."""
    ones = (1.0,) * len(levels)
    groups = names.groups
    law = LengthLaw(
        levels=levels,
        group_level=names.group_level,
        table=table,
        rows=rows,
        offset=dict.fromkeys(groups, ones),
        pace=dict.fromkeys(groups, (0.0,) * len(levels)),
        prompt_edges=names.prompt_edges,
        tenant_effect=names.tenant_effect,
        model_effect=names.model_effect,
    )
    log_ratio = newest.log_output[:, None] - np.log(base_tokens(law, newest))
    place = group_places(newest, groups, names.prompt_edges)
    offset = conformal_offsets(log_ratio, place, groups, names.parent, levels)
    pace = tuple(rounded(value) for value in paces(log_ratio, levels))
    return replace(
        law,
        offset={name: tuple(rounded(value) for value in values) for name, values in offset.items()},
        pace=dict.fromkeys(groups, pace),
        recent=_last_recent(newest, groups),
    )


def _last_recent(rows: LengthRows, groups: Sequence[str]) -> dict[str, float]:
    """`recent_output` of the last arrival of each class and app that has a group."""
    keys, _, place = rows.keys()
    recent = rows.column("recent_output")
    found = {}
    for at, key in enumerate(keys):
        known = recent[(place == at) & (recent > 0.0)]
        if known.size and key in groups:
            found[key] = rounded(float(known[-1]))
    return found


def _pinball(rows: LengthRows, found: FloatArray, levels: Sequence[float]) -> tuple[float, ...]:
    return tuple(pinball_loss(rows.output, found[:, at], level=level) for at, level in enumerate(levels))
