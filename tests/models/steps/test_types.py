"""Pools of several types of node: what a node without rows, a type with few and a type without any start from."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest

from models.gpus import slower
from models.portable.steps import StepLaw, StepLaws
from models.steps.fit import fit_decode, fit_prefill
from tests.models.synthetic import NODES, decode_windows, prefill_windows

A, B, C = "a100/tp4", "h100/tp4", "b200/tp4"
TYPES = {name: A if at < 4 else B for at, name in enumerate(NODES)}
RATIO = slower(B, A, "memory") or 0.0


def truth(factor: dict[str, float] | None = None) -> StepLaws:
    """Type B is 10 % slower than its data sheet says."""
    coef = (0.0057, 1.2e-5, 7.0e-8, -6.0e-14)
    b = tuple(c * RATIO * 1.1 for c in coef)
    laws = {A: StepLaw(coef, token_cap=5e5), B: StepLaw(b, token_cap=5e5)}
    return StepLaws({**laws, "*": laws[A]}, TYPES, factor or {})


@cache
def windows(seed: int, count: int = 1200) -> pl.DataFrame:
    return decode_windows(np.random.default_rng(seed), count, truth=truth())


def off(laws: StepLaws, node: str, *, true: StepLaws | None = None) -> float:
    """Largest relative error over some batches."""
    right = true or truth()
    batches = [(4, 12_000.0), (20, 60_000.0), (80, 250_000.0)]
    return max(abs(laws.decode_s(node, n, t) / right.decode_s(node, n, t) - 1.0) for n, t in batches)


def test_every_type_has_its_own_law() -> None:
    fit = fit_decode(windows(1), node_type=TYPES)
    assert set(fit.laws.by_type) == {A, B, "*"}
    assert max(off(fit.laws, node) for node in NODES) < 0.05
    assert fit.laws.node_type == TYPES


def test_a_new_node_gets_the_estimate_of_its_type_and_has_its_own_after_a_night() -> None:
    types = {**TYPES, "new": B}
    before = fit_decode(windows(1), node_type=types).laws
    assert before.decode_s("new", 20, 60_000) == before.by_type[B].decode_s(20, 60_000)
    slow = StepLaws(truth().by_type, types, {"new": 1.4})
    rows = decode_windows(np.random.default_rng(9), 300, truth=slow).with_columns(node=pl.lit("new"))
    exact = [slow.decode_s("new", n, t) for n, t in rows.select("sequences", "tokens").rows()]
    night = rows.with_columns(busy_us=pl.Series(exact) * pl.col("n_steps") * 1e6)
    after = fit_decode(pl.concat([windows(1), night.cast(windows(1).schema)]), node_type=types).laws
    assert off(before, "new", true=slow) > 0.2
    assert off(after, "new", true=slow) < 0.05


def test_a_type_without_rows_is_the_nearest_one_by_its_data_sheet() -> None:
    fit = fit_decode(windows(1), node_type={**TYPES, "c": C}, residual=False)
    assert fit.donor[C] == B
    ratio = slower(C, B, "memory")
    assert fit.laws.decode_s("c", 20, 60_000) == pytest.approx(fit.laws.by_type[B].decode_s(20, 60_000) * (ratio or 0))
    assert fit.laws.by_type[C].measured == ()
    assert fit.laws.by_type[C].sigma > fit.laws.by_type[B].sigma


def test_few_rows_of_a_type_move_it_to_their_level() -> None:
    few = pl.concat(
        [
            windows(1).filter(pl.col("node").is_in(NODES[:4])),
            windows(1).filter(pl.col("node").is_in(NODES[4:])).head(5),
        ]
    )
    none = fit_decode(few.filter(pl.col("node").is_in(NODES[:4])), node_type=TYPES).laws
    some = fit_decode(few, node_type=TYPES).laws
    assert off(none, NODES[4]) > 0.06
    assert off(some, NODES[4]) < off(none, NODES[4])


def test_nodes_of_unknown_type_take_the_law_of_most_rows() -> None:
    rows = windows(1)
    fit = fit_decode(rows, node_type=TYPES)
    count = {kind: rows.filter(pl.col("node").replace_strict(TYPES) == kind).height for kind in (A, B)}
    assert fit.laws.by_type["*"] == fit.laws.by_type[max(count, key=lambda kind: count[kind])]


def test_the_order_of_rows_changes_nothing() -> None:
    first = fit_decode(windows(2), node_type=TYPES)
    assert fit_decode(windows(2).sample(fraction=1.0, shuffle=True, seed=3), node_type=TYPES) == first


def test_prefill_goes_with_arithmetic() -> None:
    rows = prefill_windows(np.random.default_rng(4), 400)
    laws = fit_prefill(rows, node_type={**dict.fromkeys(NODES, A), "c": C}, residual=False).laws
    ratio = slower(C, A, "flops")
    assert laws.prefill_s("c", 2048, 0) == pytest.approx(laws.by_type[A].prefill_s(2048, 0) * (ratio or 0))


@pytest.mark.parametrize("kind", ["prefill", "decode"])
def test_types_without_rows_lean_on_measured_ones_only(kind: str) -> None:
    """A type without rows is nearer to another one without rows than to what was measured."""
    types = TYPES | {"new0": "m/h100/tp2", "new1": "m/h200/tp2", "new2": "made-up/tp1"}
    fit = (
        fit_decode(windows(3, 300), node_type=types)
        if kind == "decode"
        else fit_prefill(prefill_windows(np.random.default_rng(3), 300), node_type=types)
    )
    assert {fit.donor[name] for name in ("m/h100/tp2", "m/h200/tp2", "made-up/tp1")} <= {A, B}
    assert all(min(fit.laws.by_type[name].coef[:2]) >= 0.0 for name in types.values())
