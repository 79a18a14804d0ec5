"""TPOT of deployments: one and many agree, and levels hold what facts do not tell."""

from __future__ import annotations

import numpy as np
import pytest

from features.errors import ModelError
from models.gpus import GPUS
from models.steps.deployments import INPUTS, Model, Point, fit_deployments, predict_deployments

MODELS = {"small": Model(8e9, 8e9, 32, 2048), "sparse": Model(230e9, 10e9, 62, 2048)}
SLOW = {"h100": 1.3, "b200": 1.0}


def points(seed: int, rows: int, gpus: tuple[str, ...] = ("h100", "b200")) -> tuple[list[Point], np.ndarray]:
    rng = np.random.default_rng(seed)
    found, tpot = [], []
    for _ in range(rows):
        gpu, name, tp = str(rng.choice(gpus)), str(rng.choice(list(MODELS))), int(rng.choice([1, 2, 4, 8]))
        at = Point(
            gpu=GPUS[gpu], model=MODELS[name], engine="vllm", weight_bytes=1.0, tensor_parallel=tp, attention_dp=1,
            expert_tp=1, expert_parallel=1, concurrency=float(2 ** rng.integers(0, 8)), prompt=1024.0, output=1024.0,
            groups=(gpu, f"{gpu}|{name}", f"{gpu}|{name}|{tp}"),
        )  # fmt: skip
        found.append(at)
        tpot.append(at.roofline_s() * SLOW[gpu] * (1.0 + 0.2 * tp) * float(np.exp(rng.normal(0.0, 0.02))))
    return found, np.array(tpot)


def test_the_law_finds_what_the_roofline_misses() -> None:
    train, seconds = points(1, 300)
    law = fit_deployments(train, seconds)
    test, true = points(2, 100)
    many = predict_deployments(law, test)
    np.testing.assert_allclose([law.tpot_s(point) for point in test], many, rtol=1e-9)
    assert np.median(np.abs(many / true - 1.0)) < 0.06
    assert len(test[0].inputs()) == len(INPUTS)


def test_a_gpu_without_rows_is_its_roofline_times_what_engines_make_of_it() -> None:
    train, seconds = points(1, 300, ("b200",))
    test, true = points(2, 100, ("h100",))
    zero = predict_deployments(fit_deployments(train, seconds), test)
    assert np.median(zero / true) == pytest.approx(1 / 1.3, rel=0.05)
    few, few_s = points(3, 12, ("h100",))
    known = predict_deployments(fit_deployments([*train, *few], np.concatenate([seconds, few_s]), own="h100"), test)
    assert np.median(np.abs(known / true - 1.0)) < 0.75 * np.median(np.abs(zero / true - 1.0))


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(ModelError, match="measured"):
        fit_deployments([], np.zeros(0))
