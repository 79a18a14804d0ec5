"""Sigma is the noise of steps, not the drift of the batch between two polls; tails are what was seen."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from features.schemas import with_all_columns
from features.tables import decode_steps
from models.portable.steps import ANY, StepLaw
from models.steps.fit import fit_decode, fit_prefill
from tests.models.synthetic import SIGMA, prefill_windows

LAW = StepLaw((0.006, 1e-5, 9e-8, 0.0))


def polled(rng: np.random.Generator, polls: int) -> pl.DataFrame:
    """A D that is polled once a second while requests join and leave: the table `decode_steps` of it."""
    contexts = [float(rng.integers(500, 8000)) for _ in range(20)]
    moments = np.zeros(6)
    rows, now_s = [], 0.0
    load = 20.0
    for second in range(polls):
        load = float(np.clip(load + rng.normal(0.0, 4.0) * (second % 3 > 0), 3, 60))
        while now_s < second:
            if len(contexts) < load and rng.random() < 0.3:
                contexts.append(float(rng.integers(500, 8000)))
            elif len(contexts) > load and rng.random() < 0.3:
                contexts.pop(int(rng.integers(len(contexts))))
            n, t = len(contexts), sum(contexts)
            step_s = LAW.decode_s(n, t) * float(np.exp(rng.normal(0.0, SIGMA)))
            moments = moments + np.array([1, n, step_s * 1e6, n * n, n * step_s * 1e6, n])
            contexts = [context + 1 for context in contexts]
            now_s += step_s
        rows.append(
            {"observed_at_us": second * 1_000_000, "node": "d0", "decode_moments": moments.tolist(), "block_tokens": 1,
             "running_tokens": int(sum(contexts)), "running_requests": len(contexts)}
        )  # fmt: skip
    return decode_steps(with_all_columns("node_loads", pl.DataFrame(rows)))


def test_drift_between_polls_is_not_taken_for_noise() -> None:
    table = polled(np.random.default_rng(5), 700)
    told = fit_decode(table).laws.by_type[ANY]
    untold = fit_decode(table.drop("drift")).laws.by_type[ANY]
    assert SIGMA * 0.8 <= told.sigma <= SIGMA * 1.3
    assert told.sigma < untold.sigma
    for n, t in [(10, 40_000), (30, 130_000)]:
        assert told.decode_s(n, t) == pytest.approx(LAW.decode_s(n, t), rel=0.03)


def test_tails_of_single_steps_hold_their_stalls() -> None:
    rng = np.random.default_rng(6)
    rows = prefill_windows(rng, 3000).filter(pl.col("n_steps") == 1)
    stalled = pl.int_range(pl.len()) % 50 == 0
    rows = rows.with_columns(pl.when(stalled).then(pl.col("busy_us") * 3).otherwise(pl.col("busy_us")))
    law = fit_prefill(rows).laws.by_type[ANY]
    assert law.sigma < 0.12
    assert law.tail.at(1000.0, 0.99) > 2.0
    assert law.tail.at(1000.0, 0.5) == pytest.approx(1.0, abs=0.03)
    assert all(row == tuple(sorted(row)) for row in law.tail.factor)


def test_what_was_measured_is_told() -> None:
    rows = prefill_windows(np.random.default_rng(7), 500)
    law = fit_prefill(rows).laws.by_type[ANY]
    (low, high), _, prompts = law.measured
    assert low < 200
    assert 7000 < high <= 8192
    assert prompts == (1.0, 1.0)
    assert law.outside(20_000.0, 0.0, 1.0) == (0,)
    assert law.outside(1_000.0, 0.0, 1.0) == ()
