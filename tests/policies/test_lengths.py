"""The lowered length law equals the law's own numbers, request by request, whatever is known of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import ModelError
from models.portable.arrays import leaves
from policies.lengths import arrival_of, booked_output, constant_length, expected_output, length_rows
from tests.policies import world
from tests.policies.twin.scenarios import make_arrivals, make_lengths
from tests.policies.views import DECODE_TREES, LENGTH, PREFILL_TREES

CLASSES = ("chat", "batch")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), known=st.booleans())
def test_every_row_is_that_of_the_law(seed: int, known: bool) -> None:
    rng = np.random.default_rng(seed)
    law, load = make_lengths(rng), world.workload(40, seed=seed)
    if known:
        load = replace(load, arrivals=make_arrivals(rng, 40))
    rows = length_rows(law, CLASSES, load)
    groups = list(law.offset)
    for i in range(load.requests):
        arrival = arrival_of(CLASSES, load, i)
        assert tuple(rows.base[i]) == law.base(arrival)
        assert groups[rows.group[i]] == law.group(arrival)
        assert rows.cap[i] == law.cap(arrival)
    for levels in ((0.9, 0.5), (0.75, 0.75)):
        wanted = [
            max(1, math.ceil(law.quantile(arrival_of(CLASSES, load, i), levels[load.class_index[i]])))
            for i in range(40)
        ]
        assert booked_output(rows, levels, load.class_index).tolist() == wanted
    assert booked_output(rows, (0.5, 0.5), load.class_index).tolist() == expected_output(law, CLASSES, load).tolist()


def test_unknown_arrivals_teach_and_know_nothing_but_class_and_prompt() -> None:
    load = world.workload(10)
    rows = length_rows(LENGTH, ("interactive", "batch"), load)
    assert rows.learned.all()
    assert set(rows.cap.tolist()) == {4096.0}
    assert {list(LENGTH.offset)[group] for group in rows.group} == {"*", "interactive"}
    held = replace(make_arrivals(np.random.default_rng(1), 10), learned=np.arange(10) < 3)
    assert length_rows(LENGTH, CLASSES, replace(load, arrivals=held)).learned.tolist() == [1, 1, 1, *[0] * 7]


def test_a_constant_is_a_law_without_pace() -> None:
    law, load = constant_length(7.5), world.workload(20)
    assert set(booked_output(length_rows(law, CLASSES, load), (0.9, 0.5), load.class_index).tolist()) == {8}
    assert set(expected_output(law, CLASSES, load).tolist()) == {8}
    assert all(pace == 0.0 for pace in law.pace["*"])


def test_a_level_that_the_law_lacks_is_refused() -> None:
    load = world.workload(5)
    with pytest.raises(ModelError, match="quantile level"):
        booked_output(length_rows(LENGTH, CLASSES, load), (0.8, 0.5), load.class_index)


@pytest.mark.parametrize(("trees", "inputs"), [(PREFILL_TREES, 3), (DECODE_TREES, 2)])
def test_leaves_of_many_rows_are_those_of_each(trees, inputs: int) -> None:
    rng = np.random.default_rng(2)
    x = rng.choice([0.0, 1.0, 2.5, 3.0, 16.0, 512.0, 1e5, 2e6, 1e7, np.nan], (400, inputs))
    for root in trees.roots:
        assert leaves(trees, root, x).tolist() == [trees.leaf(root, row) for row in x]
