"""All estimators in one call."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest

from features.errors import ModelError
from models.fit import TrainTables, fit_estimators, score_estimators
from models.portable.estimators import RiskSigma
from models.portable_json import from_dict, to_dict
from tests.models.length.samples import requests
from tests.models.synthetic import decode_windows, prefill_windows
from tests.models.transfer.test_fit import both


@cache
def tables(seed: int) -> TrainTables:
    rng = np.random.default_rng(seed)
    return TrainTables(requests(rng, 1200), prefill_windows(rng, 600), decode_windows(rng, 600), both(seed, 300))


def test_every_estimator_is_fitted_and_survives_json() -> None:
    estimators, report = fit_estimators(tables(1), seed=1)
    assert from_dict(json.loads(json.dumps(to_dict(estimators)))) == estimators
    assert estimators.prefill == report.prefill.laws
    assert estimators.decode == report.decode.laws
    assert estimators.transfer == report.transfer.law
    assert estimators.length == report.length.law
    assert estimators.risk == RiskSigma()


def test_the_same_tables_give_the_same_bytes() -> None:
    first, second = (json.dumps(to_dict(fit_estimators(tables(1), seed=1)[0])) for _ in range(2))
    assert first == second


def test_risk_and_capacity_are_passed_on() -> None:
    estimators, _ = fit_estimators(replace(tables(1), capacity_tokens=7e5), seed=1, risk=RiskSigma(0.4, 0.2))
    assert estimators.risk == RiskSigma(0.4, 0.2)
    assert estimators.decode.by_type["*"].token_cap == 7e5


def test_held_out_days_are_scored_by_group() -> None:
    estimators, _ = fit_estimators(tables(1), seed=1)
    report = score_estimators(estimators, tables(2), min_steps=50)
    assert {score.slo_class for score in report.length} == {"*", "chat", "batch", "long"}
    assert report.decode
    assert all(cell.steps >= 50 for cell in (*report.prefill, *report.decode))
    assert np.median([cell.error.median_ape_frac for cell in report.decode]) < 0.06


def test_every_table_that_is_too_small_is_named() -> None:
    few = replace(tables(1), decode_steps=tables(1).decode_steps.head(3), transfers=tables(1).transfers.head(0))
    with pytest.raises(ModelError) as error:
        fit_estimators(few, seed=1)
    assert error.value.place == "decode_steps, transfers"
    assert "at least 20 usable windows" in str(error.value)


def test_one_damaged_table_is_named_as_it_is() -> None:
    damaged = replace(tables(1), lengths=tables(1).lengths.with_columns(prompt_tokens=pl.lit("x")))
    with pytest.raises(ModelError, match="numeric") as error:
        fit_estimators(damaged, seed=1)
    assert error.value.place == "lengths.prompt_tokens"
