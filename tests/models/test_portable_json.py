"""Estimators survive JSON bit for bit, and damaged JSON is refused by place."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import ModelError
from models.portable import PATHS, Estimators, LengthTable, RiskSigma, StepLaw, TransferLaw
from models.portable_json import from_dict, to_dict

NAMES = st.text("abD/0p*_", min_size=1, max_size=6)
POSITIVE = st.floats(1e-12, 2.0**52)
SIGMA = st.floats(0, 3)


@st.composite
def laws(draw: st.DrawFn) -> StepLaw:
    edges = tuple(sorted(draw(st.sets(st.integers(1, 2**40), max_size=4))))
    numbers = st.floats(-1e9, 1e9)
    return StepLaw(
        coef=(draw(numbers), draw(numbers), draw(numbers), draw(numbers)),
        node_factor=draw(st.dictionaries(NAMES, POSITIVE, max_size=4)),
        bucket_edges=edges,
        bucket_factor=tuple(draw(st.lists(POSITIVE, min_size=len(edges) + 1, max_size=len(edges) + 1))),
        token_cap=draw(st.just(1e18) | st.floats(1, 2.0**52)),
        sigma=draw(SIGMA),
    )


@st.composite
def estimators(draw: st.DrawFn) -> Estimators:
    levels = tuple(sorted(draw(st.sets(st.floats(0.01, 0.99), min_size=1, max_size=4))))
    edges = tuple(sorted(draw(st.sets(st.integers(0, 10**6), max_size=3))))
    names = {*draw(st.sets(NAMES, max_size=3)), "*"}
    row = st.lists(st.floats(0, 1e6), min_size=len(levels), max_size=len(levels)).map(tuple)
    table = st.lists(row, min_size=len(edges) + 1, max_size=len(edges) + 1).map(tuple)
    offset = st.lists(POSITIVE, min_size=len(levels), max_size=len(levels)).map(tuple)
    by_path = {path: draw(st.floats(0, 10)) for path in PATHS}
    return Estimators(
        length=LengthTable(levels, edges, {n: draw(table) for n in names}, {n: draw(offset) for n in names}),
        prefill=draw(laws()),
        decode=draw(laws()),
        transfer=TransferLaw(by_path, {path: draw(st.floats(1e-6, 1)) for path in PATHS}, draw(SIGMA)),
        risk=RiskSigma(draw(st.floats(0.01, 2)), draw(st.floats(0.01, 2))),
    )


EXAMPLE = Estimators(
    length=LengthTable((0.5, 0.9), (1000,), {"*": ((10.0, 20.0), (15.0, 31.5))}, {"*": (1.0, 1.1)}),
    prefill=StepLaw((0.016, 1.5e-5, 4.2e-10, 0.0), {"p0/dp0": 1.3}, sigma=0.08),
    decode=StepLaw((0.005, 1e-5, 5e-8, -1e-14), token_cap=250_000.0),
    transfer=TransferLaw({"local": 0.001, "cross": 0.002}, {"local": 0.9, "cross": 1.0}),
)


@given(estimators())
@settings(max_examples=60, deadline=None)
def test_json_keeps_every_bit(made: Estimators) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(made)))) == made


@given(estimators())
@settings(max_examples=30, deadline=None)
def test_canonical_json_is_a_fixed_point(made: Estimators) -> None:
    text = rfc8785.dumps(to_dict(made))
    assert from_dict(json.loads(text)) == made
    assert rfc8785.dumps(to_dict(from_dict(json.loads(text)))) == text


def test_no_cap_is_null() -> None:
    written: Any = to_dict(EXAMPLE)
    assert written["prefill"]["token_cap"] is None
    assert written["decode"]["token_cap"] == 250_000.0


DAMAGES: list[tuple[tuple[Any, ...], Any, str]] = [
    (("prefill", "coef"), [1.0, 2.0, 3.0], "estimators.prefill.coef"),
    (("prefill", "coef", 1), "0.1", "estimators.prefill.coef[1]"),
    (("prefill", "coef", 1), True, "estimators.prefill.coef[1]"),
    (("prefill", "coef", 1), float("nan"), "estimators.prefill.coef[1]"),
    (("prefill", "coef", 1), 2.0**60, "estimators.prefill.coef[1]"),
    (("prefill", "node_factor", "p0/dp0"), 0.0, "estimators.prefill.node_factor.p0/dp0"),
    (("prefill", "bucket_edges"), [5, 5], "estimators.prefill.bucket_edges"),
    (("prefill", "bucket_edges"), [5], "estimators.prefill.bucket_factor"),
    (("decode", "sigma"), -0.1, "estimators.decode.sigma"),
    (("decode", "token_cap"), 0, "estimators.decode.token_cap"),
    (("decode", "extra"), 1, "estimators.decode"),
    (("transfer", "efficiency", "local"), 1.01, "estimators.transfer.efficiency.local"),
    (("transfer", "alpha_s"), {"local": 0.1}, "estimators.transfer.alpha_s"),
    (("length", "levels"), [0.9, 0.5], "estimators.length.levels"),
    (("length", "levels"), [0.5, 1.0], "estimators.length.levels"),
    (("length", "tokens", "*"), [[1.0, 2.0]], "estimators.length.tokens.*"),
    (("length", "tokens", "*"), 3, "estimators.length.tokens.*"),
    (("length", "tokens"), {"a": [[1.0, 2.0], [1.0, 2.0]]}, "estimators.length.tokens"),
    (("length", "offset"), {"a": [1.0, 1.0]}, "estimators.length.offset"),
    (("risk",), [0.1, 0.2], "estimators.risk"),
    (("risk", "ttft"), 0, "estimators.risk.ttft"),
]


@pytest.mark.parametrize(("path", "value", "place"), DAMAGES)
def test_damage_is_named_by_place(path: tuple[Any, ...], value: Any, place: str) -> None:
    damaged: Any = copy.deepcopy(to_dict(EXAMPLE))
    at = damaged
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(ModelError) as error:
        from_dict(damaged)
    assert error.value.place == place


def test_what_cannot_be_read_is_not_written() -> None:
    with pytest.raises(ModelError, match="alpha_s"):
        to_dict(
            Estimators(EXAMPLE.length, EXAMPLE.prefill, EXAMPLE.decode, TransferLaw({"local": 0.0}, {"local": 0.9}))
        )
