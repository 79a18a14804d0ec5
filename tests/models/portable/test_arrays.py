"""Laws over columns give the bits of the plain ones."""

from __future__ import annotations

import numpy as np
import pytest

from models.portable import arrays
from models.portable.steps import StepLaws, one_type
from models.portable.transfer import TransferLaw
from tests.models.honesty.laws import random_step_law

ROWS = 200


@pytest.mark.parametrize("seed", range(5))
def test_step_laws_are_equal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    law = random_step_law(rng, decode=False)
    x = rng.uniform(0.0, 9.0, (ROWS, 3))
    x[::7, 1] = np.nan
    plain = np.array([law.prefill_s(*row) for row in x.tolist()])
    np.testing.assert_array_equal(arrays.prefill_s(law, *x.T), plain)
    law = random_step_law(rng, decode=True)
    y = np.where(np.isnan(x[:, :2]), 0.0, x[:, :2])
    plain = np.array([law.decode_s(*row) for row in y.tolist()])
    np.testing.assert_array_equal(arrays.decode_s(law, *y.T), plain)
    tail = arrays.tail_factor(law.tail, y[:, 0], 0.9)
    np.testing.assert_array_equal(tail, [law.tail.at(size, 0.9) for size in y[:, 0].tolist()])
    assert arrays.tail_factor(law.tail, y[:, 0], 0.7) is None


def test_laws_of_several_types_are_equal() -> None:
    rng = np.random.default_rng(1)
    laws = StepLaws(
        {"*": random_step_law(rng, decode=True), "slow": random_step_law(rng, decode=True)},
        {"d1": "slow"},
        {"d0": 1.3, "d1": 0.7},
    )
    nodes = [f"d{k}" for k in rng.integers(0, 3, ROWS)]
    x = rng.uniform(0.0, 9.0, (ROWS, 2))
    found = arrays.by_node(laws, nodes, lambda law, at: arrays.decode_s(law, x[at, 0], x[at, 1]))
    plain = [laws.decode_s(node, *row) for node, row in zip(nodes, x.tolist(), strict=True)]
    np.testing.assert_array_equal(found, plain)
    assert one_type(laws.by_type["*"]).decode_s("d9", 1.0, 2.0) == laws.decode_s("d9", 1.0, 2.0)


def test_transfers_are_equal() -> None:
    rng = np.random.default_rng(2)
    law = TransferLaw(
        {"local": 0.001, "cross": 0.004}, {"local": 0.9, "cross": 0.7}, descriptor_s=1e-6, descriptors_per_block=80.0,
        wire_frac=0.8,
    )  # fmt: skip
    path = [("local", "cross")[k] for k in rng.integers(0, 2, ROWS)]
    x = rng.uniform(1.0, 1e9, (ROWS, 3))
    plain = [law.seconds(name, *row) for name, row in zip(path, x.tolist(), strict=True)]
    np.testing.assert_array_equal(arrays.transfer_s(law, path, *x.T), plain)
