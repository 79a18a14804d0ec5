"""Refits on drawn blocks of time: whole blocks, each at a place of its own, and laws that scatter as they should."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest

from features.errors import ModelError
from models.fit import TrainTables, fit_estimators
from models.portable.cache import CacheLaw
from models.portable.estimators import Estimators
from models.refits import BLOCK_US, BLOCKS_A_DAY, draw, refits, resampled
from tests.models.length.samples import requests
from tests.models.synthetic import decode_windows, prefill_windows
from tests.models.transfer.test_fit import both

DAY = 20_000
PLACES = np.concatenate([DAY * BLOCKS_A_DAY + np.arange(10, 16), (DAY + 1) * BLOCKS_A_DAY + np.arange(30, 37)])


def at_us(rng: np.random.Generator, rows: int) -> pl.Series:
    """Times within PLACES, ascending."""
    return pl.Series(np.sort(PLACES[rng.integers(0, PLACES.size, rows)] * BLOCK_US + rng.integers(0, BLOCK_US, rows)))


@cache
def fitted(lengths: int = 1500) -> tuple[TrainTables, Estimators]:
    rng = np.random.default_rng(1)
    tables = TrainTables(
        requests(rng, lengths).with_columns(arrived_at_us=at_us(rng, lengths)),
        prefill_windows(rng, 800).with_columns(started_at_us=at_us(rng, 800)),
        decode_windows(rng, 800).with_columns(observed_at_us=at_us(rng, 800)),
        both(1, 300).with_columns(started_at_us=at_us(rng, both(1, 300).height)),
    )
    found = fit_estimators(tables, seed=1)[0]
    return tables, replace(found, cache={"p0": CacheLaw(100.0)})


def test_a_day_draws_as_many_of_its_own_blocks() -> None:
    drawn = draw(PLACES, np.random.default_rng(3))
    assert drawn.place.tolist() == PLACES.tolist()
    assert (drawn.block // BLOCKS_A_DAY).tolist() == (PLACES // BLOCKS_A_DAY).tolist()
    assert set(drawn.block.tolist()) < set(PLACES.tolist())
    assert (np.diff(drawn.block) >= 0).all()


def test_blocks_come_whole_and_none_lies_on_another() -> None:
    table = pl.DataFrame({"t": at_us(np.random.default_rng(2), 400), "x": np.arange(400)})
    drawn = draw(PLACES, np.random.default_rng(3))
    found = resampled(table, "t", drawn)
    assert found.columns == table.columns
    for block, place in zip(drawn.block.tolist(), drawn.place.tolist(), strict=True):
        before = table.filter(pl.col("t") // BLOCK_US == block)
        after = found.filter(pl.col("t") // BLOCK_US == place)
        assert after["x"].to_list() == before["x"].to_list()
        assert (after["t"] - place * BLOCK_US).to_list() == (before["t"] - block * BLOCK_US).to_list()
    assert found["t"].is_sorted()


def test_refits_differ_from_each_other_around_the_estimators() -> None:
    tables, laws = fitted()
    found = refits(tables, laws, count=3, seed=7)
    assert len(found) == 3
    values = [e.decode.decode_s("d0", 20.0, 40_000.0) for e in found]
    assert len(set(values)) == 3
    assert values == pytest.approx([laws.decode.decode_s("d0", 20.0, 40_000.0)] * 3, rel=0.05)
    assert len({e.prefill.prefill_s("p0", 4000.0, 0.0) for e in found}) == 3
    assert len({e.transfer.sigma for e in found}) == 3
    assert len({e.length.offset["*"] for e in found}) == 3
    for e in found:
        assert (e.cache, e.risk, e.length.rows) == (laws.cache, laws.risk, laws.length.rows)


def test_a_refit_depends_on_the_seed_and_its_number_only() -> None:
    tables, laws = fitted()
    first = refits(tables, laws, count=2, seed=7)
    shuffled = replace(tables, decode_steps=tables.decode_steps.sample(fraction=1.0, shuffle=True, seed=1))
    assert refits(shuffled, laws, count=1, seed=7) == first[:1]
    assert refits(tables, laws, count=1, seed=8)[0].decode != first[0].decode


def test_estimators_of_an_earlier_night_stay() -> None:
    tables, laws = fitted()
    (found,) = refits(tables, laws, count=1, seed=7, kept=("length", "decode"))
    assert (found.length, found.decode) == (laws.length, laws.decode)
    assert found.prefill != laws.prefill
    assert refits(tables, laws, count=2, seed=7, kept=("length", "prefill", "decode", "transfer")) == (laws, laws)
    with pytest.raises(ModelError, match="its own rows"):
        refits(replace(tables, lengths=tables.lengths.head(250)), laws, count=1, seed=7)


def test_a_table_of_one_row_is_found_again() -> None:
    tables, laws = fitted(150)
    found = refits(tables, laws, count=2, seed=7)
    assert len({e.length.rows for e in (laws, *found)}) == 3


def test_offsets_scatter_as_those_of_fresh_logs_do() -> None:
    """The median offset of n answers has a standard error; drawn again it scatters by about as much."""
    tables, laws = fitted()
    kept = ("prefill", "decode", "transfer")
    offsets = np.log([e.length.offset["*"][0] for e in refits(tables, laws, count=60, seed=3, kept=kept)])
    n = 0.15 * tables.lengths.height
    fresh = 1.2533 * 0.6 / np.sqrt(n)  # answers scatter by about 0.6 around the table, in logs
    assert fresh / 3 < np.std(offsets) < fresh * 3
    assert np.mean(offsets) == pytest.approx(np.log(laws.length.offset["*"][0]), abs=3 * fresh)
