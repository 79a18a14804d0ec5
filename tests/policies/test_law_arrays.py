"""Laws as arrays, and the kernels on them: equal to the portable form, bit for bit."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.portable.steps import StepLaw, StepLaws, one_type
from policies.compiled import entry_kernel
from policies.kernel_types import FACTOR, FIRST_BEND
from policies.law_arrays import law_arrays, step_arrays
from policies.law_kernel import decode_residual, decode_s, prefill_s
from tests.policies.twin.scenarios import decode_law, make_trees, prefill_law
from tests.policies.views import estimators, same_bits

NODES = ("a", "b", "c")


@entry_kernel
def from_python(prefill, decode, at, x):
    residual, until = decode_residual(decode, at, x[3], x[4])
    return prefill_s(prefill, at, x[0], x[1], x[2]), decode_s(decode, at, x[3], x[4]), residual, until


def laws(rng: np.random.Generator, make) -> StepLaws:
    return StepLaws({"*": make(rng), "t": make(rng)}, {"b": "t", "c": "unheard of"}, {"a": float(rng.uniform(0.5, 2))})


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_kernels_equal_the_portable_laws(seed):
    rng = np.random.default_rng(seed)
    prefill, decode = laws(rng, prefill_law), laws(rng, decode_law)
    arrays = step_arrays(prefill, NODES), step_arrays(decode, NODES)
    for at, node in enumerate(NODES):
        x = np.floor(rng.uniform(0, [130, 25_000, 6, 8, 1_200]))
        x[rng.random(5) < 0.05] = 0.0
        prefill_found, decode_found, residual, until = from_python(*arrays, at, x)
        assert same_bits(prefill.prefill_s(node, *x[:3]), prefill_found)
        assert same_bits(decode.decode_s(node, *x[3:]), decode_found)
        assert same_bits(decode.of(node).trees.product(x[3:]), residual)
        # Up to the bound nothing changes, and the bound is a place where it may.
        assert until > x[4]
        for tokens in (x[4], min(until, 2_000.0) - 1.0):
            assert tokens < x[4] or decode.of(node).trees.product((x[3], tokens)) == residual
    assert math.isnan(from_python(*arrays, 0, np.array([1.0, 0.0, 1.0, np.nan, 5.0]))[1])


def test_types_share_their_trees_and_bends_are_padded():
    rng = np.random.default_rng(0)
    trees = make_trees(rng, [(20, 120), (0, 20_000), (1, 4)])
    while not trees.roots:
        trees = make_trees(rng, [(20, 120), (0, 20_000), (1, 4)])
    plain, bent = StepLaw((1.0,) * 5), StepLaw((2.0,) * 5, bends=((5.0, 1.0),), trees=trees)
    made = step_arrays(StepLaws({"*": plain, "t": bent}, {"b": "t", "c": "t"}, {"c": 3.0}), NODES)
    assert made.law.shape == (3, FIRST_BEND + 2)
    assert made.law[0, FIRST_BEND:].tolist() == [math.inf, 0.0]
    assert made.law[1, FIRST_BEND:].tolist() == [5.0, 1.0]
    assert made.law[:, FACTOR].tolist() == [1.0, 1.0, 3.0]
    assert len(made.branch) == len(trees.feature)
    assert made.roots[0].tolist() == [-1] * len(trees.roots)
    assert made.roots[1].tolist() == made.roots[2].tolist()


def test_ports_carry_their_factors():
    ports = [("p0", 100.0), ("p9", 100.0)], [("d1", 100.0)], [("up:0>1", 100.0), ("up:1>0", 100.0)]
    made = law_arrays(estimators(), *ports)
    assert made.egress.tolist() == [90.0, 100.0]
    assert made.ingress.tolist() == [80.0]
    assert made.uplink.tolist() == [70.0, 100.0]
    assert law_arrays(estimators(), *ports[:2], []).uplink.tolist() == [0.0]
    assert step_arrays(one_type(StepLaw((1.0,) * 4)), ["x"]).branch.shape == (0, 3)
