"""Scores, risk spreads: known values and bad input."""

from __future__ import annotations

import numpy as np
import pytest

from features.errors import ModelError
from models.metrics import ape_summary, coverage, pinball_loss, robust_sigma, wilson
from models.risk import fit_risk


def test_relative_errors() -> None:
    got = ape_summary(np.array([1.1, 0.9, 1.0, 2.0, 1.0]), np.ones(5))
    assert got.count == 5
    assert got.median_ape_frac == pytest.approx(0.1)
    assert got.p90_ape_frac == pytest.approx(0.64)
    assert got.signed_median_frac == 0.0


def test_pinball_weighs_the_two_sides_by_level() -> None:
    assert pinball_loss(np.array([10.0]), np.array([4.0]), level=0.9) == pytest.approx(5.4)
    assert pinball_loss(np.array([4.0]), np.array([10.0]), level=0.9) == pytest.approx(0.6)


def test_pinball_is_least_at_the_quantile() -> None:
    y = np.random.default_rng(1).lognormal(5, 1, 4000)
    at = [pinball_loss(y, np.full(4000, np.quantile(y, q)), level=0.9) for q in (0.8, 0.9, 0.97)]
    assert at[1] < min(at[0], at[2])


def test_coverage_counts_ties_as_covered() -> None:
    got = coverage(np.array([1.0, 2.0, 3.0, 4.0]), np.full(4, 3.0))
    assert (got.count, got.covered_frac) == (4, 0.75)
    assert got.low_frac < 0.75 < got.high_frac


def test_wilson_known_value() -> None:
    got = wilson(90, 100)
    assert (got.low_frac, got.high_frac) == pytest.approx((0.8256, 0.9448), abs=1e-4)
    assert wilson(0, 10).low_frac == pytest.approx(0.0, abs=1e-12)
    assert wilson(10, 10).high_frac == pytest.approx(1.0)


def test_robust_sigma_ignores_a_few_wild_values() -> None:
    values = np.random.default_rng(2).normal(3, 0.2, 5000)
    values[:100] = 1e6
    assert robust_sigma(values) == pytest.approx(0.2, rel=0.06)
    assert robust_sigma(np.array([1.0])) == 0.0


def test_risk_is_a_spread_around_the_prediction() -> None:
    rng = np.random.default_rng(3)
    predicted = rng.uniform(0.1, 5, 4000)
    assert fit_risk(predicted * np.exp(rng.normal(0, 0.3, 4000)), predicted) == pytest.approx(0.3, rel=0.06)
    assert fit_risk(predicted, predicted) == 0.05
    assert fit_risk(predicted * 50, predicted) == 1.0
    # Always 20 % late is a risk although it never varies.
    assert fit_risk(predicted * 1.2, predicted) > 0.2


@pytest.mark.parametrize(
    "call",
    [
        lambda: ape_summary(np.ones(2), np.ones(3)),
        lambda: ape_summary(np.ones(0), np.ones(0)),
        lambda: pinball_loss(np.ones(2), np.ones(2), level=1.0),
        lambda: coverage(np.ones((2, 1)), np.ones((2, 1))),
        lambda: wilson(3, 2),
        lambda: wilson(0, 0),
        lambda: fit_risk(np.ones(19), np.ones(19)),
        lambda: fit_risk(np.ones(30), np.ones(31)),
        lambda: fit_risk(np.full(30, np.nan), np.ones(30)),
    ],
)
def test_bad_input_is_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(ModelError):
        call()
