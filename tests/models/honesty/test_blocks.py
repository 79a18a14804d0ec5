"""How sure a day's value is: right for independent rows, wider for rows that resemble their neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from models.honesty.blocks import estimate, mean, median


def test_independent_rows_have_the_usual_error() -> None:
    rng = np.random.default_rng(0)
    errors = [estimate(rng.normal(0.0, 1.0, 2000), mean).error for _ in range(50)]
    assert np.mean(errors) == pytest.approx(1.0 / np.sqrt(2000), rel=0.25)


def test_rows_that_wander_are_less_sure() -> None:
    rng = np.random.default_rng(1)
    wandering = np.repeat(rng.normal(0.0, 1.0, 20), 100) + rng.normal(0.0, 0.1, 2000)
    assert estimate(wandering, median).error > 5 * estimate(rng.permutation(wandering), median).error


def test_few_rows_are_not_tested() -> None:
    found = estimate(np.ones(199), mean)
    assert (found.value, found.tested, found.beyond(0.0, 0.1), found.above(0.0)) == (1.0, False, None, None)
    assert np.isnan(found.interval()).all()
    assert estimate(np.ones(200), mean).tested


def test_what_lies_within_the_margin_is_no_evidence() -> None:
    rng = np.random.default_rng(2)
    found = estimate(rng.normal(0.05, 0.1, 1000), mean)
    assert found.beyond(0.0, 0.06) == 1.0
    p = found.beyond(0.0, 0.01)
    assert p is not None
    assert p < 1e-4
    low, high = found.interval()
    assert low < found.value < high
    assert estimate(np.ones(300), mean).beyond(0.0, 0.5) == 0.0
    assert estimate(np.ones(300), mean).above(0.5) == 0.0


def test_the_least_error_holds() -> None:
    assert estimate(np.ones(300), mean, least_error=0.02).error == 0.02
