"""TPOT of measured deployments: a new operating point, a new deployment, a new GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.estimators.bars import Bar, Part, Row
from benchmarks.estimators.step_baselines import affine, forest, plain_lightgbm
from benchmarks.estimators.step_data import Silicon, silicon
from benchmarks.estimators.step_errors import Errors, bars, error, rows
from models.metrics import BoolArray, FloatArray
from models.steps.deployments import fit_deployments, predict_deployments

FOLDS = 5
SEED = 1
KNOWN_ROWS = 3
DRAWS = 3
OURS = "deployment law"
NEW_GPU = {"b200_sxm": 16.0, "h100_sxm": 30.0}
NEW_GPU_WITH_ROWS = {"h100_sxm": 22.0}


def measure(data: Path) -> Part:
    """All protocols."""
    one = silicon(data)
    found: list[Row] = []
    demands: list[Bar] = []
    for names, protocol, median, p90 in (
        (one.operating, "new operating point", 5.0, 25.0),
        (one.deployment, "new deployment", 12.0, 40.0),
    ):
        errors: Errors = {}
        for out in _folds(names):
            for method, piece in _errors(one, ~out, out).items():
                errors.setdefault(method, []).append(piece)
        found += rows("silicon TPOT", protocol, errors)
        demands += bars(f"silicon TPOT, {protocol}", errors[OURS], median, p90)
    for system, median in NEW_GPU.items():
        out = one.system == system
        errors = {method: [piece] for method, piece in _errors(one, ~out, out).items()}
        found += rows("silicon TPOT", f"{system} never measured", errors)
        demands += bars(f"silicon TPOT, {system} never measured", errors[OURS], median)
        known: Errors = {OURS: []}
        for draw in range(DRAWS):
            shown = _some_rows(one, out, draw)
            known[OURS].append(_ours(one, ~out | shown, out & ~shown, own=system))
        found += rows("silicon TPOT", f"{system}, {KNOWN_ROWS} rows a model and engine", known)
        if system in NEW_GPU_WITH_ROWS:
            name = f"silicon TPOT, {system} with {KNOWN_ROWS} rows a model and engine"
            demands += bars(name, known[OURS], NEW_GPU_WITH_ROWS[system])
    note = (
        "silicon TPOT of a GPU without rows moves by tens of percent with a few rows of gb200: read it as a rough guess"
    )
    return Part("silicon", tuple(found), tuple(demands), (note,))


def _folds(names: np.typing.NDArray[np.str_]) -> list[BoolArray]:
    """What is left out, fold by fold; equal names stay together."""
    distinct, of = np.unique(names, return_inverse=True)
    fold = np.random.default_rng(SEED).permutation(distinct.size) % FOLDS
    return [fold[of] == k for k in range(FOLDS)]


def _some_rows(one: Silicon, out: BoolArray, draw: int) -> BoolArray:
    """KNOWN_ROWS rows of every model and engine among the rows that are left out, drawn with a seed."""
    rng = np.random.default_rng(SEED + draw)
    shown = np.zeros(out.size, dtype=np.bool_)
    for name in np.unique(one.served[out]):
        shown[rng.permutation(np.flatnonzero(out & (one.served == name)))[:KNOWN_ROWS]] = True
    return shown


def _ours(one: Silicon, train: BoolArray, test: BoolArray, *, own: str | None = None) -> FloatArray:
    seen = [point for point, inside in zip(one.points, train, strict=True) if inside]
    asked = [point for point, inside in zip(one.points, test, strict=True) if inside]
    law = fit_deployments(seen, one.tpot_s[train], own=own)
    return error(predict_deployments(law, asked), one.tpot_s[test])


def _errors(one: Silicon, train: BoolArray, test: BoolArray) -> dict[str, FloatArray]:
    facts = np.array([(*p.inputs(), p.gpu.flops, p.gpu.memory) for p in one.points])
    terms = np.array([(p.roofline_s(), p.concurrency) for p in one.points])
    group = np.unique(one.deployment, return_inverse=True)[1].astype(np.float64)
    y = one.tpot_s
    predicted = {
        "affine": affine(terms[train], y[train], terms[test], group[train], group[test]),
        "LightGBM": plain_lightgbm(facts[train], y[train], facts[test]),
        "random forest": forest(facts[train], y[train], facts[test]),
    }
    found = {OURS: _ours(one, train, test)}
    return found | {method: error(seconds, y[test]) for method, seconds in predicted.items()}
