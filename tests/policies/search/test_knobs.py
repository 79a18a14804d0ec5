"""Knobs: scales, what is off, choices, bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import PolicyError
from policies.search.knobs import Knob, among, around

LOG = around("w", (0.01, 100.0, 0.1), 1.0)


@given(st.floats(0.1, 100.0), st.floats(0.1, 100.0))
def test_a_value_within_the_bounds_is_its_own_coordinate(value, other):
    assert LOG.value(LOG.raw(value)) == value
    assert LOG.apart(value, other) == pytest.approx(LOG.apart(other, value))
    assert 0 <= LOG.apart(value, other) <= 1


def test_all_that_is_off_is_one_place():
    assert LOG.value(0.05) == 0.0
    assert LOG.raw(0.0) == LOG.raw(0.02)
    assert LOG.apart(0.02, 1.0) == LOG.apart(0.05, 1.0) > LOG.apart(0.02, 0.05) == 0


def test_a_choice_is_near_or_it_is_another_one():
    draws = among("draws", (0.0, 2.0, 4.0), 0.0)
    assert [draws.value(raw) for raw in (0, 1, 2)] == [0.0, 2.0, 4.0]
    assert [draws.raw(value) for value in (0.0, 2.0, 4.0)] == [0.0, 1.0, 2.0]
    assert [draws.apart(raw, 0.0) for raw in (0, 1, 2)] == [0.0, 0.5, 0.5]
    assert not draws.on_bound(2)


def test_a_bound_counts_where_a_number_was_searched():
    assert LOG.on_bound(99.0)
    assert not LOG.on_bound(50.0)
    assert not LOG.on_bound(0.011)  # off
    assert not Knob("steps", -2, 2, 0, whole=True).on_bound(2)


def test_bounds_hold_the_default():
    assert around("w", (0.1, 10.0, 0.0), 50.0).high == 50.0
    small = around("w", (0.1, 10.0, 0.2), 0.15)
    assert small.value(small.default) == 0.15
    with pytest.raises(PolicyError, match="starts from"):
        around("w", (0.1, 10.0, 0.0), 0.0)
