"""Laws of mixed steps: what is fitted is what is evaluated."""

from __future__ import annotations

import numpy as np
import pytest

from features.errors import ModelError
from models.steps.mixed import MixedSteps, fit_mixed, predict_mixed, scaled


def steps(seed: int, rows: int = 800) -> MixedSteps:
    rng = np.random.default_rng(seed)
    chunk = rng.choice([0, 64, 256, 1024], rows).astype(float)
    kv = rng.choice([0, 512, 4096], rows) * (chunk > 0)
    n = np.where(chunk == 0, rng.integers(1, 65, rows), rng.integers(0, 65, rows)).astype(float)
    t = n * rng.integers(100, 4000, rows)
    size = chunk + n
    seconds = 0.01 + 1e-5 * size + 2e-5 * np.maximum(size - 256, 0) + 1e-9 * chunk * kv + 6e-8 * t
    return MixedSteps(chunk, kv.astype(float), n, t, seconds * (1.0 + 0.05 * (size > 300)))


def test_one_and_many_agree_and_the_law_is_close() -> None:
    train, test = steps(1), steps(2, 100)
    law = fit_mixed(train)
    many = predict_mixed(law, test)
    columns = (test.chunk, test.kv_prefill, test.sequences, test.kv_decode)
    one = [law.seconds(*(float(column[i]) for column in columns)) for i in range(100)]
    np.testing.assert_allclose(one, many, rtol=1e-9)
    assert np.median(np.abs(many / test.seconds - 1.0)) < 0.02
    assert law.measured[2] == (0.0, 64.0)


def test_the_law_of_another_gpu_is_scaled_by_its_data_sheet() -> None:
    law = fit_mixed(steps(1), trees=False)
    there = scaled(law, "h100/tp1", "a100/tp1")
    assert there.seconds(1024, 0, 0, 0) < law.seconds(1024, 0, 0, 0)
    with pytest.raises(ModelError, match="table"):
        scaled(law, "x/tp1", "a100/tp1")


def test_few_steps_are_refused() -> None:
    with pytest.raises(ModelError, match="at least 100"):
        fit_mixed(steps(1, 99))
