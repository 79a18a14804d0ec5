"""Stack distances against a cache that is kept block by block."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.estimators.emulated_caches import BLOCK_TOKENS, Cache, Prompt, log
from models.cache.reuse import larger_before
from models.cache.rows import read
from models.cache.score import replayed_blocks


@settings(deadline=None)
@given(st.lists(st.integers(-1, 40), max_size=60))
def test_larger_entries_before(values: list[int]) -> None:
    expected = [sum(earlier > value for earlier in values[:at]) for at, value in enumerate(values)]
    assert larger_before(np.array(values, np.int64)).tolist() == expected


@st.composite
def asked(draw: st.DrawFn) -> list[Prompt]:
    """Prompts over a small tree of prefixes: a block is its parent's number and its own place among the children."""
    made, at_us = [], 0
    for _ in range(draw(st.integers(1, 25))):
        at_us += draw(st.integers(0, 5)) * 1_000_000
        block, chain = 0, []
        for _ in range(draw(st.integers(1, 6))):
            block = block * 3 + draw(st.integers(1, 2))
            chain.append(block)
        made.append((at_us, tuple(chain)))
    return made


@settings(deadline=None)
@given(asked(), st.integers(0, 14), st.sampled_from([None, 2.0, 6.0]))
def test_replayed_hits_equal_a_plain_cache(prompts: list[Prompt], capacity: int, ttl_s: float | None) -> None:
    ttl_us = float("inf") if ttl_s is None else ttl_s * 1e6
    table = log(prompts, Cache(capacity, ttl_us, OrderedDict()))
    uses = read(table)["p0"]
    assert (replayed_blocks(uses, capacity, ttl_s) * BLOCK_TOKENS).tolist() == table["cached_tokens"].to_list()
    assert not uses.cold.any()
    assert (uses.reuses.distance >= 0).all()
