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
from models.portable.cache import CacheLaw
from models.portable.estimators import Estimators, RiskSigma
from models.portable.length import LengthLaw
from models.portable.steps import StepLaw, StepLaws, Tail, one_type
from models.portable.transfer import PATHS, TransferLaw
from models.portable.trees import Trees, table_of
from models.portable_json import from_dict, to_dict
from policies.lengths import constant_length

NAMES = st.text("abD/0p*_", min_size=1, max_size=6)
POSITIVE = st.floats(1e-12, 2.0**52)
SIGMA = st.floats(0, 3)
NUMBERS = st.floats(-1e9, 1e9).map(lambda value: value + 0.0)  # JSON has one zero


@st.composite
def tables(draw: st.DrawFn, values: st.SearchStrategy[float] = POSITIVE) -> Trees:
    edges = tuple(sorted(draw(st.sets(st.integers(1, 2**40), max_size=4))))
    return table_of(0, edges, draw(st.lists(values, min_size=len(edges) + 1, max_size=len(edges) + 1)))


@st.composite
def laws(draw: st.DrawFn, coefficients: int) -> StepLaws:
    kinds = {*draw(st.sets(NAMES, max_size=2)), "*"}
    by_type = {
        kind: StepLaw(
            coef=tuple(draw(NUMBERS) for _ in range(coefficients)),
            bends=tuple(draw(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=2))),
            trees=draw(tables()),
            token_cap=draw(st.none() | st.floats(1, 2.0**52)),
            sigma=draw(SIGMA),
            tail=Tail((0.5, 0.9), (draw(NUMBERS),), ((1.0, draw(POSITIVE)), (1.0, 2.0))),
            measured=tuple(draw(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=2))),
        )
        for kind in kinds
    }
    types = draw(st.dictionaries(NAMES, st.sampled_from(sorted(kinds)), max_size=3))
    return StepLaws(by_type, types, draw(st.dictionaries(NAMES, POSITIVE, max_size=4)))


@st.composite
def lengths(draw: st.DrawFn) -> LengthLaw:
    levels = tuple(sorted(draw(st.sets(st.floats(0.01, 0.99), min_size=1, max_size=4))))
    groups = {*draw(st.sets(NAMES, max_size=3)), "*"}
    cells = draw(st.integers(1, 4))

    def rows(values: st.SearchStrategy[float]) -> tuple[float, ...]:
        return tuple(draw(st.lists(values, min_size=len(levels), max_size=len(levels))))

    return LengthLaw(
        levels,
        {group: draw(NUMBERS) for group in groups},
        draw(tables(st.integers(0, cells - 1).map(float))),
        tuple(rows(st.floats(0, 1e6)) for _ in range(cells)),
        {group: rows(POSITIVE) for group in groups},
        {group: rows(st.floats(0, 0.5)) for group in groups},
        draw(st.none() | POSITIVE),
    )


@st.composite
def estimators(draw: st.DrawFn) -> Estimators:
    return Estimators(
        length=draw(lengths()),
        prefill=draw(laws(5)),
        decode=draw(laws(4)),
        transfer=TransferLaw(
            {path: draw(st.floats(0, 10)) for path in PATHS},
            {path: draw(st.floats(1e-6, 1)) for path in PATHS},
            wire_frac=draw(POSITIVE),
            port_factor=draw(st.dictionaries(NAMES, POSITIVE, max_size=3)),
            sigma=draw(SIGMA),
        ),
        risk=RiskSigma(draw(st.floats(0.01, 2)), draw(st.floats(0.01, 2))),
        cache=draw(st.dictionaries(NAMES, st.builds(CacheLaw, st.floats(0, 1e9), st.none() | POSITIVE), max_size=2)),
    )


EXAMPLE = Estimators(
    length=LengthLaw(
        (0.5, 0.9),
        {"*": 2.0},
        table_of(1, (7.0,), (0.0, 1.0)),
        ((10.0, 20.0), (15.0, 31.5)),
        {"*": (1.0, 1.1)},
        {"*": (0.0, 0.01)},
    ),
    prefill=one_type(StepLaw((0.016, 1.5e-5, 4.2e-10, 0.0, 1e-4), sigma=0.08), {"p0/dp0": 1.3}),
    decode=one_type(StepLaw((0.005, 1e-5, 5e-8, -1e-14), trees=table_of(0, (8,), (1.0, 1.1)), token_cap=250_000.0)),
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
    assert written["prefill"]["by_type"]["*"]["token_cap"] is None
    assert written["decode"]["by_type"]["*"]["token_cap"] == 250_000.0


PREFILL, DECODE = ("prefill", "by_type", "*"), ("decode", "by_type", "*")
DAMAGES: list[tuple[tuple[Any, ...], Any, str]] = [
    ((*PREFILL, "coef"), [1.0, 2.0, 3.0], "estimators.prefill.by_type.*"),
    ((*DECODE, "coef"), [1.0] * 5, "estimators.decode.by_type.*"),
    ((*DECODE, "trees", "feature"), [2, -1, -1], "estimators.decode.by_type.*"),
    ((*PREFILL, "coef", 1), "0.1", "estimators.prefill.by_type.*.coef.1"),
    ((*PREFILL, "coef", 1), True, "estimators.prefill.by_type.*.coef.1"),
    ((*PREFILL, "coef", 1), float("nan"), "estimators.prefill.by_type.*.coef[1]"),
    ((*PREFILL, "coef", 1), 2.0**60, "estimators.prefill.by_type.*.coef[1]"),
    (("prefill", "node_factor", "p0/dp0"), 0.0, "estimators.prefill.node_factor.p0/dp0"),
    ((*DECODE, "sigma"), -0.1, "estimators.decode.by_type.*.sigma"),
    ((*DECODE, "token_cap"), 0, "estimators.decode.by_type.*.token_cap"),
    ((*DECODE, "extra"), 1, "estimators.decode.by_type.*.extra"),
    (("transfer", "efficiency", "local"), 1.01, "estimators.transfer.efficiency.local"),
    (("length", "rows"), 3, "estimators.length.rows"),
    (("risk",), [0.1, 0.2], "estimators.risk"),
    (("risk", "ttft"), 0, "estimators.risk.ttft"),
]
MEANINGLESS: list[tuple[tuple[Any, ...], Any, str]] = [
    (("prefill", "by_type"), {"h100": {"coef": [0.0] * 5}}, "a law for the type"),
    ((*DECODE, "trees", "split"), [8.0], "one length"),
    ((*DECODE, "trees", "left"), [0, 0, 0], "behind their parent"),
    (("transfer", "alpha_s"), {"local": 0.1}, "alpha_s and efficiency"),
    (("length", "levels"), [0.9, 0.5], "levels must ascend"),
    (("length", "levels"), [0.5, 1.0], "levels must ascend"),
    (("length", "rows"), [[1.0, 2.0]], "places in `rows`"),
    (("length", "rows"), [[1.0], [2.0]], "one value a level"),
    (("length", "offset"), {"a": [1.0, 1.0]}, "same groups"),
]


def damaged(path: tuple[Any, ...], value: Any) -> Any:
    made: Any = copy.deepcopy(to_dict(EXAMPLE))
    at = made
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return made


@pytest.mark.parametrize(("path", "value", "place"), DAMAGES)
def test_damage_is_named_by_place(path: tuple[Any, ...], value: Any, place: str) -> None:
    with pytest.raises(ModelError) as error:
        from_dict(damaged(path, value))
    assert error.value.place == place


@pytest.mark.parametrize(("path", "value", "rule"), MEANINGLESS)
def test_what_means_nothing_is_refused(path: tuple[Any, ...], value: Any, rule: str) -> None:
    with pytest.raises(ModelError, match=rule):
        from_dict(damaged(path, value))


def test_what_cannot_be_read_is_not_written() -> None:
    broken = one_type(StepLaw((0.0,) * 5), {"p0": -1.0})
    with pytest.raises(ModelError, match="greater than 0"):
        to_dict(Estimators(EXAMPLE.length, broken, EXAMPLE.decode, EXAMPLE.transfer))


@pytest.mark.parametrize("cyclic", [False, True])
def test_nesting_without_end_is_refused(*, cyclic: bool) -> None:
    deep: list[Any] = []
    if cyclic:
        deep.append(deep)
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(ModelError, match="nested at most"):
        from_dict({"length": deep})


@pytest.mark.parametrize("value", [{1: 2, "a": 3}, b"x", 10**5000, 10**20], ids=["keys", "bytes", "digits", "large"])
def test_what_is_no_json_number_or_key_is_refused(value: Any) -> None:
    with pytest.raises(ModelError) as caught:
        from_dict({"risk": {"ttft": value}})
    assert "estimators" in str(caught.value)


def test_a_step_tree_cannot_turn_time_back() -> None:
    law = StepLaw((0.01, 0.0, 0.0, 0.0), trees=table_of(0, (4.0,), (1.0, -1.0)))
    prefill = one_type(StepLaw((0.01, 0.0, 0.0, 0.0, 0.0)))
    paths = dict.fromkeys(PATHS, 1.0)
    with pytest.raises(ModelError, match="leaves of trees of a decode law must be above 0"):
        Estimators(constant_length(100.0), prefill, one_type(law), TransferLaw(paths, paths))
