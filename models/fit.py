"""All estimators of a pool from its training tables: one call, one report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, cast

import polars as pl

from features.errors import ModelError
from models.cache.fit import CacheFit, fit_cache
from models.cache.score import CacheScore, score_cache
from models.length.fit import LEVELS, LengthFit, fit_length
from models.length.scores import LengthScore, score_length
from models.portable.estimators import Estimators, RiskSigma
from models.portable_json import to_dict
from models.steps.cells import StepCell, decode_cells, prefill_cells
from models.steps.fit import StepFit, fit_decode, fit_prefill
from models.transfer.fit import TransferFit, fit_transfer
from models.transfer.score import TransferScore, score_transfers

Fit = TypeVar("Fit")


@dataclass(frozen=True, slots=True)
class TrainTables:
    """Training tables of one pool over its train days; columns as `models.length.rows`, `steps.rows`, `transfer` say.

    `capacity_tokens`: KV tokens that fit on the largest D node, None = unknown. `cache`: uses of prefix caches, None =
    caches are as settings say; `prefill_blocks`: usable blocks of P nodes, of `block_tokens` tokens. `node_type`:
    node -> type of node, as `models.gpus` names types; a node that is not named has no type of its own. `contention`:
    of the pool's links.
    """

    lengths: pl.DataFrame
    prefill_steps: pl.DataFrame
    decode_steps: pl.DataFrame
    transfers: pl.DataFrame
    capacity_tokens: float | None = None
    cache: pl.DataFrame | None = None
    prefill_blocks: Mapping[str, float] = field(default_factory=dict)
    block_tokens: int | None = None
    node_type: Mapping[str, str] = field(default_factory=dict)
    contention: Literal["share", "none"] = "share"


@dataclass(frozen=True, slots=True)
class FitReport:
    """How each estimator was found, with its errors by group on the train days."""

    length: LengthFit
    prefill: StepFit
    decode: StepFit
    transfer: TransferFit
    cache: CacheFit | None = None


@dataclass(frozen=True, slots=True)
class HoldoutReport:
    """Scores of shipped estimators on days that they were not fitted on."""

    length: tuple[LengthScore, ...]
    prefill: tuple[StepCell, ...]
    decode: tuple[StepCell, ...]
    transfer: tuple[TransferScore, ...] = ()
    cache: tuple[CacheScore, ...] = ()


def fit_estimators(
    tables: TrainTables,
    *,
    seed: int,
    levels: Sequence[float] = LEVELS,
    risk: RiskSigma | None = None,
    known: tuple[TrainTables, FitReport] | None = None,
) -> tuple[Estimators, FitReport]:
    """Fits every estimator and checks that the result can be written as JSON.

    `risk` comes from replays (`models.risk.fit_risk`) and may be set later. `known`: tables and what was found of them;
    an estimator whose table is the same object is not fitted again. ModelError names every table that is too small or
    damaged, not only the first.
    """
    problems: list[ModelError] = []

    def found(estimator: str, table: str, fit: Callable[[], Fit]) -> Fit | None:
        if known is not None and getattr(known[0], table) is getattr(tables, table):
            return cast("Fit", getattr(known[1], estimator))
        return _attempt(fit, problems)

    capacity, types = tables.capacity_tokens, tables.node_type
    length = found("length", "lengths", lambda: fit_length(tables.lengths, levels=levels, seed=seed))
    prefill = found("prefill", "prefill_steps", lambda: fit_prefill(tables.prefill_steps, node_type=types))
    decode = found(
        "decode", "decode_steps", lambda: fit_decode(tables.decode_steps, capacity_tokens=capacity, node_type=types)
    )
    transfer = found("transfer", "transfers", lambda: fit_transfer(tables.transfers))
    cache = found("cache", "cache", lambda: _fit_cache(tables))
    if length is None or prefill is None or decode is None or transfer is None or cache is None:
        raise _together(problems)
    sending = replace(transfer.law, contention=tables.contention)
    estimators = Estimators(length.law, prefill.laws, decode.laws, sending, risk or RiskSigma(), cache.law)
    to_dict(estimators)
    return estimators, FitReport(length, prefill, decode, transfer, cache)


def score_estimators(estimators: Estimators, tables: TrainTables, *, min_steps: int = 100) -> HoldoutReport:
    """Scores on held-out tables: lengths by class, steps by cell of at least `min_steps` steps, transfers by
    kind of path, prefix caches by node.
    """
    return HoldoutReport(
        length=score_length(estimators.length, tables.lengths),
        prefill=prefill_cells(estimators.prefill, tables.prefill_steps, min_steps=min_steps),
        decode=decode_cells(estimators.decode, tables.decode_steps, min_steps=min_steps),
        transfer=score_transfers(estimators.transfer, tables.transfers),
        cache=()
        if tables.cache is None
        else score_cache(estimators.cache, tables.cache, block_tokens=tables.block_tokens),
    )


def _fit_cache(tables: TrainTables) -> CacheFit:
    if tables.cache is None:
        return CacheFit({}, {})
    return fit_cache(tables.cache, blocks=tables.prefill_blocks, block_tokens=tables.block_tokens)


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
