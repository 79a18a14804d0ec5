"""Quantiles of drawn cells are numpy's quantiles of the members that were drawn."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.evidence.drawn_quantiles import drawn_quantiles

LEVELS = (0.0, 0.25, 0.5, 0.99, 1.0)


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 3)), min_size=1, max_size=60),
    st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=6),
)
def test_they_are_those_of_the_members_drawn(sample: list[tuple[float, int]], often: list[list[int]]) -> None:
    values, cell = np.array([v for v, _ in sample]), np.array([c for _, c in sample], np.int64)
    counts = np.array(often, np.float64)
    counts[counts[:, cell].sum(axis=1) == 0] = 1.0  # every draw holds a member
    found = drawn_quantiles(values, cell, counts, LEVELS)
    wanted = [np.quantile(np.repeat(values, row[cell].astype(int)), LEVELS) for row in counts]
    np.testing.assert_array_equal(found, np.array(wanted).T)


@given(st.integers(1, 3000), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_where_every_cell_counts_once_they_are_of_the_sample(members: int, cells: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, cell = np.round(rng.lognormal(size=members), 1), rng.integers(0, cells, members)
    found = drawn_quantiles(values, cell, np.ones((1, cells)), LEVELS)
    np.testing.assert_array_equal(found[:, 0], np.quantile(values, LEVELS))
