"""Transfer laws under shared ports."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from features.errors import ModelError
from models.transfer.fit import fit_transfer
from tests.models.transfer.pool import table

SIGMA = 0.08


def shared_link(rng: np.random.Generator, count: int, *, path: str, alpha_s: float, efficiency: float) -> pl.DataFrame:
    """Transfers over one port of 12.5 GB/s, shared equally while they drain; bytes carry the noise."""
    capacity = 12.5e9
    size = np.exp(rng.uniform(np.log(2e7), np.log(8e9), count))
    work = size * np.exp(rng.normal(0.0, SIGMA, count))
    start = np.cumsum(rng.exponential(float(work.mean()) / (capacity * efficiency) / 0.7, count))
    rest, share, end = work.copy(), np.zeros(count), np.zeros(count)
    active: list[int] = []
    now, arriving, together = 0.0, 0, 0
    while arriving < count or active:
        rate = capacity * efficiency / max(1, len(active))
        first = min(active, key=lambda i: rest[i], default=-1)
        drained_at = now + rest[first] / rate if active else np.inf
        until = min(drained_at, start[arriving] if arriving < count else np.inf)
        for i in active:
            rest[i] -= rate * (until - now)
            share[i] += capacity / len(active) * (until - now)
        now = until
        if active and drained_at <= until:
            active.remove(first)
            end[first] = now
        else:
            active.append(arriving)
            together += len(active) > 1
            arriving += 1
    assert together >= 0.2 * count
    columns = {"path": path, "bytes": size, "share_bytes_per_s": share / (end - start)}
    return pl.DataFrame(columns | {"duration_us": (end - start + alpha_s) * 1e6})


def both(seed: int, count: int = 1500) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    local = shared_link(rng, count, path="local", alpha_s=0.002, efficiency=0.93)
    return pl.concat([local, shared_link(rng, count, path="cross", alpha_s=0.006, efficiency=0.82)])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_paths_are_recovered_under_sharing(seed: int) -> None:
    fit = fit_transfer(both(seed))
    for path, alpha_s, efficiency in [("local", 0.002, 0.93), ("cross", 0.006, 0.82)]:
        for size in (5e7, 5e8, 5e9):
            for share in (12.5e9, 6.25e9, 3e9):
                true = alpha_s + size / (efficiency * share)
                got = fit.law.alpha_s[path] + size / (fit.law.efficiency[path] * share)
                assert got == pytest.approx(true, rel=0.03), (path, size, share)
    assert fit.law.sigma == pytest.approx(SIGMA, rel=0.2)
    assert fit.borrowed == fit.clamped == ()
    assert fit.error["cross"].median_ape_frac < 0.07


def test_a_kind_without_rows_takes_the_others_numbers() -> None:
    rows = both(1).filter(pl.col("path") == "local")
    fit = fit_transfer(rows)
    assert fit.law.alpha_s["cross"] == fit.law.alpha_s["local"]
    assert fit.law.efficiency["cross"] == fit.law.efficiency["local"]
    assert fit.borrowed == ("cross",)
    assert fit.path_rows == {"local": 1500, "cross": 0}
    few = pl.concat([rows, both(1).filter(pl.col("path") == "cross").head(19)])
    assert fit_transfer(few).borrowed == ("cross",)


def test_no_path_is_faster_than_its_line() -> None:
    fast = both(1).with_columns(duration_us=pl.col("bytes") / pl.col("share_bytes_per_s") * 0.7e6 + 3e3)
    fit = fit_transfer(fast)
    assert fit.law.efficiency == {"local": 1.0, "cross": 1.0}
    assert all(0.0 <= alpha_s <= 3e-3 for alpha_s in fit.law.alpha_s.values())
    assert fit.clamped == ("local", "cross")


def test_stalled_transfers_do_not_move_the_law() -> None:
    rows = both(2)
    stalled = pl.int_range(pl.len()) % 29 == 0
    spoilt = rows.with_columns(pl.when(stalled).then(pl.col("duration_us") * 20).otherwise(pl.col("duration_us")))
    clean, robust = fit_transfer(rows).law, fit_transfer(spoilt)
    assert robust.law.efficiency["local"] == pytest.approx(clean.efficiency["local"], rel=0.01)
    assert robust.trimmed >= rows.height // 30


def test_order_of_rows_changes_nothing() -> None:
    rows = both(3, 300)
    assert fit_transfer(rows.sample(fraction=1.0, shuffle=True, seed=1)) == fit_transfer(rows)


def test_rows_without_bytes_or_time_are_counted() -> None:
    rows = both(1, 100)
    odd = rows.head(3).with_columns(duration_us=pl.lit(0.0))
    assert fit_transfer(pl.concat([rows, odd])).unusable == 3


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (both(1, 100).drop("path"), "missing"),
        (both(1, 100).with_columns(path=pl.lit("diagonal")), "diagonal"),
        (both(1, 19), "at least 20"),
        (both(1, 100).with_columns(bytes=-pl.col("bytes")), "bytes >= 0"),
    ],
)
def test_bad_tables_are_refused(rows: pl.DataFrame, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        fit_transfer(rows)


@pytest.mark.parametrize(
    ("column", "value", "place"),
    [
        ("started_at_us", None, "transfers.started_at_us"),
        ("out_bytes_per_s", 0.0, "transfers.out_bytes_per_s"),
        ("up_bytes_per_s", -1.0, "transfers.up_bytes_per_s"),
    ],
)
def test_flows_that_cannot_be_are_named(column: str, value: float | None, place: str) -> None:
    rows = table("slow port", count=100)
    with pytest.raises(ModelError) as caught:
        fit_transfer(rows.with_columns(pl.lit(value, rows.schema[column]).alias(column)))
    assert caught.value.place == place


def test_first_transfers_of_pairs_are_no_sample_of_a_path() -> None:
    rows = table("slow port", count=300)
    first = pl.lit(value=True)
    with pytest.raises(ModelError, match="after the first of their pair"):
        fit_transfer(rows.with_columns(first_of_pair=first))
    crossing = rows.with_columns(first_of_pair=pl.when(path="cross").then(first).otherwise("first_of_pair"))
    fit = fit_transfer(crossing)
    assert fit.borrowed == ("cross",)
    assert fit.law.efficiency["cross"] == fit.law.efficiency["local"] < 1.0
