"""All estimators of a pool from its training tables: one call, one report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from features.errors import ModelError
from models.length import LEVELS, LengthFit, LengthScore, fit_length, score_length
from models.portable import Estimators, RiskSigma
from models.portable_json import to_dict
from models.step_cells import StepCell, decode_cells, prefill_cells
from models.steps import StepFit, fit_decode, fit_prefill
from models.transfer import TransferFit, fit_transfer

Fit = TypeVar("Fit")


@dataclass(frozen=True, slots=True)
class TrainTables:
    """Training tables of one pool over its train days; columns as `models.length_rows`, `step_rows`, `transfer` say.

    `capacity_tokens`: KV tokens that fit on the largest D node, None = unknown.
    """

    lengths: pl.DataFrame
    prefill_steps: pl.DataFrame
    decode_steps: pl.DataFrame
    transfers: pl.DataFrame
    capacity_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class FitReport:
    """How each estimator was found, with its errors by group on the train days."""

    length: LengthFit
    prefill: StepFit
    decode: StepFit
    transfer: TransferFit


@dataclass(frozen=True, slots=True)
class HoldoutReport:
    """Scores of shipped estimators on days that they were not fitted on."""

    length: tuple[LengthScore, ...]
    prefill: tuple[StepCell, ...]
    decode: tuple[StepCell, ...]


def fit_estimators(
    tables: TrainTables, *, seed: int, levels: Sequence[float] = LEVELS, risk: RiskSigma | None = None
) -> tuple[Estimators, FitReport]:
    """Fits every estimator and checks that the result can be written as JSON.

    `risk` comes from replays (`models.risk.fit_risk`) and may be set later. ModelError names every table that is too
    small or damaged, not only the first.
    """
    problems: list[ModelError] = []
    length = _attempt(lambda: fit_length(tables.lengths, levels=levels, seed=seed), problems)
    prefill = _attempt(lambda: fit_prefill(tables.prefill_steps), problems)
    decode = _attempt(lambda: fit_decode(tables.decode_steps, capacity_tokens=tables.capacity_tokens), problems)
    transfer = _attempt(lambda: fit_transfer(tables.transfers), problems)
    if length is None or prefill is None or decode is None or transfer is None:
        raise _together(problems)
    estimators = Estimators(length.table, prefill.law, decode.law, transfer.law, risk or RiskSigma())
    to_dict(estimators)
    return estimators, FitReport(length, prefill, decode, transfer)


def score_estimators(estimators: Estimators, tables: TrainTables, *, min_steps: int = 100) -> HoldoutReport:
    """Scores on held-out tables: lengths by class, steps by cell of at least `min_steps` steps, no transfers."""
    return HoldoutReport(
        length=score_length(estimators.length, tables.lengths),
        prefill=prefill_cells(estimators.prefill, tables.prefill_steps, min_steps=min_steps),
        decode=decode_cells(estimators.decode, tables.decode_steps, min_steps=min_steps),
    )


def _attempt(fit: Callable[[], Fit], problems: list[ModelError]) -> Fit | None:
    """The fit, or None with its error added to `problems`."""
    try:
        return fit()
    except ModelError as error:
        problems.append(error)
        return None


def _together(problems: Sequence[ModelError]) -> ModelError:
    if len(problems) == 1:
        return problems[0]
    return ModelError(
        "every training table must be fit to learn from",
        value=[str(problem) for problem in problems],
        place=", ".join(problem.place.split(".")[0] for problem in problems),
        hint="`routecal doctor` says which logs carry what",
    )
