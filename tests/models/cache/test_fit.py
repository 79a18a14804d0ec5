"""Capacity and age of prefix caches from what they found."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.estimators.emulated_caches import Cache, log, prompts
from features.errors import ModelError
from models.cache.fit import fit_cache
from models.cache.score import score_cache
from models.portable.cache import CacheLaw

NEVER = float("inf")


@cache
def asked(seed: int, count: int = 600) -> list[tuple[int, tuple[int, ...]]]:
    return prompts(seed, count, per_second=3.0, sessions=30)


def logged(capacity: int, ttl_s: float = NEVER, *, seed: int = 1, count: int = 600, node: str = "p0") -> pl.DataFrame:
    return log(asked(seed, count), Cache(capacity, ttl_s * 1e6, OrderedDict()), node, lost_frac=0.01, seed=seed)


@settings(deadline=None, max_examples=4)
@given(st.integers(800, 3_000), st.sampled_from([NEVER, 20.0, 30.0]))
def test_capacity_and_age_are_recovered(capacity: int, ttl_s: float) -> None:
    law = fit_cache(logged(capacity, ttl_s)).law["p0"]
    table = logged(capacity, ttl_s)
    (no_end,) = score_cache({"p0": CacheLaw(1e12, None if ttl_s == NEVER else ttl_s)}, table)
    (no_age,) = score_cache({"p0": CacheLaw(capacity)}, table)
    if no_end.error_frac > 0.05:  # the capacity ends the life of some blocks before their age does
        assert law.capacity_blocks == pytest.approx(capacity, rel=0.05)
    if no_age.error_frac > 0.05:  # and the other way round
        assert law.ttl_s == pytest.approx(ttl_s, rel=0.1)
    if ttl_s == NEVER:
        assert law.ttl_s is None
    (score,) = score_cache({"p0": law}, logged(capacity, ttl_s, seed=2))
    assert abs(score.error_frac) < 0.02


def test_a_cache_without_end_has_all_blocks_of_its_node() -> None:
    table = logged(10_000_000)
    law = fit_cache(table, blocks={"p0": 200_000.0}).law["p0"]
    assert (law.capacity_blocks, law.ttl_s) == (200_000.0, None)
    assert fit_cache(table, blocks={"p0": 10.0}).nodes["p0"].source == "blocks"
    assert fit_cache(table).law["p0"].capacity_blocks > 500


def test_no_hits_mean_no_cache() -> None:
    assert fit_cache(logged(0)).law["p0"] == CacheLaw(0.0)


def test_nodes_with_few_prompts_take_the_pools_part_of_their_blocks() -> None:
    table = pl.concat([logged(1_000), logged(1_000, node="p1", seed=2), logged(1_000, node="p2", count=20)])
    fit = fit_cache(table, blocks={"p0": 2_000.0, "p1": 2_000.0, "p2": 800.0, "p3": 4_000.0})
    assert fit.law["p2"].capacity_blocks == pytest.approx(400.0, rel=0.15)
    assert fit.law["p3"].capacity_blocks == pytest.approx(2_000.0, rel=0.05)
    assert [fit.nodes[node].source for node in ("p0", "p1", "p2", "p3")] == ["own", "own", "pool", "pool"]


def test_blocks_of_another_size_are_converted() -> None:
    table = logged(1_000)
    assert fit_cache(table, block_tokens=4).law["p0"].capacity_blocks == pytest.approx(4_000, rel=0.02)
    law = {"p0": CacheLaw(4_000.0)}
    (score,) = score_cache(law, table, block_tokens=4)
    assert abs(score.error_frac) < 0.02


def test_a_cache_that_shrank_today_is_as_it_is_today() -> None:
    day_us = 86_400_000_000
    before = logged(2_000).with_columns(at_us=pl.col("at_us") - day_us)
    law = fit_cache(pl.concat([before, logged(1_000, seed=2)])).law["p0"]
    assert law.capacity_blocks == pytest.approx(1_000, rel=0.05)


def test_order_of_rows_changes_nothing() -> None:
    table = logged(1_000)
    assert fit_cache(table.sample(fraction=1.0, shuffle=True, seed=1)) == fit_cache(table)


def test_a_cache_that_was_warm_before_the_log_is_no_error() -> None:
    later = logged(10_000_000).tail(400)
    fit = fit_cache(later)
    assert fit.law["p0"].ttl_s is None
    (score,) = score_cache(fit.law, later)
    assert score.prompts < 400
    assert abs(score.error_frac) < 0.02


def test_a_log_without_cached_tokens_tells_nothing() -> None:
    silent = logged(1_000).with_columns(cached_tokens=pl.lit(None, pl.Int64))
    assert fit_cache(silent).law == {}
    assert fit_cache(silent.head(0)).law == {}


def test_a_damaged_table_is_refused() -> None:
    with pytest.raises(ModelError, match="missing"):
        fit_cache(logged(1_000).drop("cached_tokens"))


@pytest.mark.parametrize("column", ["at_us", "block_tokens", "prompt_tokens"])
def test_a_use_of_unknown_time_or_size_is_named(column: str) -> None:
    table = logged(1000, count=60)
    with pytest.raises(ModelError) as caught:
        fit_cache(table.with_columns(pl.lit(None, table.schema[column]).alias(column)))
    assert caught.value.place == f"cache.{column}"


def test_nodes_have_blocks() -> None:
    for blocks, block_tokens in (({"p0": 0.0}, None), ({"p0": -1.0}, 16), ({}, 0)):
        with pytest.raises(ModelError, match="must be above 0"):
            fit_cache(logged(1000, count=60), blocks=blocks, block_tokens=block_tokens)
