"""Vectorised quantiles equal the table's own, in every bin and on its edges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from features.errors import ModelError
from models.portable import LengthTable
from policies.booked_output import booked_output, expected_output
from tests.policies import world

TABLE = LengthTable(
    levels=(0.5, 0.9),
    prompt_edges=(200, 1000),
    tokens={"chat": ((10.2, 50.0), (20.0, 80.5), (0.1, 0.2)), "*": ((5.0, 6.0), (7.0, 8.0), (9.0, 10.0))},
    offset={"chat": (1.0, 1.1), "*": (1.0, 1.0)},
)


def test_booked_output_is_the_tables_quantile_rounded_up() -> None:
    prompts = np.array([1, 199, 200, 999, 1000, 5000] * 2, np.int32)
    load = replace(world.workload(12), prompt_tokens=prompts, class_index=np.repeat([0, 1], 6).astype(np.int32))
    booked = booked_output(TABLE, ("chat", "other"), (0.9, 0.5), load)
    wanted = [max(1, math.ceil(TABLE.quantile("chat", int(n), 0.9))) for n in prompts[:6]]
    wanted += [max(1, math.ceil(TABLE.quantile("other", int(n), 0.5))) for n in prompts[6:]]
    assert booked.tolist() == wanted
    assert booked.dtype == np.int32
    assert expected_output(TABLE, ("chat", "other"), load).tolist()[:6] == [11, 11, 20, 20, 1, 1]


def test_one_bin_needs_no_edges() -> None:
    table = LengthTable((0.5,), (), {"*": ((7.5,),)}, {"*": (2.0,)})
    assert set(booked_output(table, ("a", "b"), (0.5, 0.5), world.workload(20)).tolist()) == {15}


def test_a_level_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(ModelError, match="quantile level"):
        booked_output(TABLE, ("chat", "other"), (0.8, 0.5), world.workload(5))
