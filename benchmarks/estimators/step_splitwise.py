"""Prefill and decode of splitwise: a setting left out in one group or everywhere, a GPU left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.estimators.bars import Bar, Part, Row
from benchmarks.estimators.step_baselines import affine, forest, plain_lightgbm
from benchmarks.estimators.step_data import splitwise
from benchmarks.estimators.step_errors import Errors, bars, error, rows
from models.metrics import FloatArray
from models.steps import evaluate
from models.steps.fit import StepFit, fit_decode, fit_prefill
from models.steps.rows import Kind, StepRows, read

LIMITS: dict[Kind, tuple[float, float]] = {"prefill": (8.0, 25.0), "decode": (3.0, 8.0)}
OURS, NO_TREE = "shipped law", "shipped law, no tree"
KINDS: tuple[Kind, ...] = ("prefill", "decode")


def measure(data: Path) -> Part:
    """Both phases under all protocols."""
    table = splitwise(data)
    found, demands = [], []
    for kind in KINDS:
        one = table.with_columns(busy_us=pl.col(f"{kind}_us"))
        for everywhere, protocol in ((False, "setting left out in one group"), (True, "setting new everywhere")):
            inside, edges = _settings_left_out(kind, one, everywhere=everywhere)
            found += rows(f"splitwise {kind}", protocol, inside)
            found += rows(f"splitwise {kind}", f"{protocol}, outermost", edges)
            demands += bars(f"splitwise {kind}, {protocol}", inside[OURS], *LIMITS[kind])
        more, limits = _gpu_left_out(kind, one)
        found += more
        demands += limits
    return Part("splitwise", tuple(found), tuple(demands))


def _fit(kind: Kind, train: pl.DataFrame, every: pl.DataFrame, *, tree: bool = True) -> StepFit:
    """Laws of all groups, each a type of its own."""
    types = {name: name for name in every["node"].unique().sort().to_list()}
    options: dict[str, Any] = {"node_type": types, "node_effects": False, "residual": tree}
    return fit_prefill(train, **options) if kind == "prefill" else fit_decode(train, **options)


def _settings_left_out(kind: Kind, table: pl.DataFrame, *, everywhere: bool) -> tuple[Errors, Errors]:
    inside: Errors = {}
    edges: Errors = {}
    groups = [None] if everywhere else table["node"].unique().sort().to_list()
    for setting in table["setting"].unique().sort().to_list():
        for group in groups:
            out = (pl.col("setting") == setting) & (pl.lit(group is None) | (pl.col("node") == (group or "")))
            test, train = table.filter(out), table.filter(~out)
            into = inside if bool(test["interior"][0]) else edges
            for method, pieces in _errors(kind, train, test, table).items():
                into.setdefault(method, []).append(pieces)
    return inside, edges


def _errors(kind: Kind, train: pl.DataFrame, test: pl.DataFrame, every: pl.DataFrame) -> dict[str, FloatArray]:
    seen, asked = read(kind, train), read(kind, test)
    names = every["node"].unique().sort().to_list()

    def group(part: StepRows) -> FloatArray:
        return np.array([float(names.index(name)) for name in part.nodes])[part.node]

    def inputs(part: StepRows) -> FloatArray:
        return np.concatenate([part.inputs, part.terms, group(part)[:, None]], axis=1)

    terms = (0, 3) if kind == "prefill" else (0, 1)
    simple = affine(seen.terms[:, terms], seen.seconds, asked.terms[:, terms], group(seen), group(asked))
    predicted = {
        OURS: evaluate.predict(_fit(kind, train, every).laws, asked),
        NO_TREE: evaluate.predict(_fit(kind, train, every, tree=False).laws, asked),
        "affine": simple,
        "LightGBM": plain_lightgbm(inputs(seen), seen.seconds, inputs(asked)),
        "random forest": forest(inputs(seen), seen.seconds, inputs(asked)),
    }
    return {method: error(seconds, asked.seconds) for method, seconds in predicted.items()}


def _gpu_left_out(kind: Kind, table: pl.DataFrame) -> tuple[list[Row], list[Bar]]:
    """All groups of a GPU left out; then one setting of each of them is known."""
    found: list[Row] = []
    demands: list[Bar] = []
    for gpu in ("h100", "a100"):
        new = pl.col("node").str.contains(f"/{gpu}")
        rest, unseen = table.filter(~new), table.filter(new)
        asked = read(kind, unseen)
        zero: Errors = {OURS: [error(evaluate.predict(_fit(kind, rest, table).laws, asked), asked.seconds)]}
        one: Errors = {OURS: []}
        for setting in table["setting"].unique().sort().to_list():
            known = pl.col("setting") == setting
            laws = _fit(kind, pl.concat([rest, unseen.filter(known)]), table).laws
            left = read(kind, unseen.filter(~known))
            one[OURS].append(error(evaluate.predict(laws, left), left.seconds))
        found += rows(f"splitwise {kind}", f"{gpu} never measured", zero)
        found += rows(f"splitwise {kind}", f"{gpu} with one setting", one)
        if kind == "decode":
            demands += bars(f"splitwise decode, {gpu} never measured", zero[OURS], 15.0)
            demands += bars(f"splitwise decode, {gpu} with one measured setting", one[OURS], 5.0)
    return found, demands
