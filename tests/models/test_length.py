"""Length tables cover what they claim, class by class, on days that they never saw."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from features.errors import ModelError
from models.length import LEVELS, fit_length, score_length
from models.portable import LengthTable

CLASSES = {"chat": (40.0, 0.35, 0.6), "batch": (400.0, 0.05, 0.9), "long": (5.0, 0.5, 0.4)}


def requests(rng: np.random.Generator, count: int, *, shares: tuple[float, ...] = (0.6, 0.3, 0.1)) -> pl.DataFrame:
    """Log-normal outputs whose median grows with the prompt, differently in each class."""
    name = rng.choice(list(CLASSES), count, p=shares)
    scale, slope, sigma = (np.array([CLASSES[n][at] for n in name]) for at in range(3))
    prompt = np.exp(rng.uniform(np.log(50), np.log(30_000), count)).astype(int)
    output = np.maximum(1, np.rint(scale * prompt**slope * np.exp(rng.normal(0, sigma)))).astype(int)
    return pl.DataFrame(
        {
            "arrived_at_us": np.arange(count) * 1000,
            "slo_class": name,
            "prompt_tokens": prompt,
            "output_tokens": output,
            "max_output_tokens": np.full(count, 10**7),
            "finish_reason": ["stop"] * count,
        }
    )


def assert_no_crossing(table: LengthTable) -> None:
    for name, rows in table.tokens.items():
        for row in rows:
            shipped = [value * factor for value, factor in zip(row, table.offset[name], strict=True)]
            assert shipped == sorted(shipped)


@pytest.mark.parametrize("seed", [1, 2])
def test_each_class_is_covered_on_later_requests(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fit = fit_length(requests(rng, 8000), seed=seed)
    assert fit.method == "lightgbm"
    assert (fit.rows, fit.offset_rows) == (8000, 2000)
    for score in score_length(fit.table, requests(rng, 10_000)):
        slack = max(0.03, 3 * math.sqrt(score.level * (1 - score.level) / score.rows))
        assert abs(score.coverage.covered_frac - score.level) <= slack, score
        assert score.coverage.low_frac <= score.coverage.covered_frac <= score.coverage.high_frac
    assert_no_crossing(fit.table)


def test_the_table_knows_more_than_its_classes() -> None:
    rng = np.random.default_rng(3)
    train, test = requests(rng, 6000), requests(rng, 4000)
    blind = train.with_columns(prompt_tokens=pl.lit(100))
    informed = {s.slo_class: s for s in score_length(fit_length(train, seed=1).table, test) if s.level == 0.9}
    without = {s.slo_class: s for s in score_length(fit_length(blind, seed=1).table, test) if s.level == 0.9}
    assert informed["long"].pinball_tokens < 0.75 * without["long"].pinball_tokens
    assert informed["*"].pinball_tokens < without["*"].pinball_tokens
    assert 1.0 < informed["chat"].reserve_ratio < 3.0


def test_newest_rows_move_the_offsets() -> None:
    rng = np.random.default_rng(4)
    old, new = requests(rng, 4500), requests(rng, 1500)
    longer = new.with_columns(output_tokens=pl.col("output_tokens") * 2, arrived_at_us=pl.col("arrived_at_us") + 10**9)
    fit = fit_length(pl.concat([old, longer]), seed=1)
    assert fit.table.offset["chat"][2] == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("count", [20, 60, 199])
def test_little_data_gives_plain_quantiles(count: int) -> None:
    rows = requests(np.random.default_rng(5), count, shares=(1.0, 0.0, 0.0))
    fit = fit_length(rows, seed=1)
    assert fit.method == "empirical"
    assert fit.table.prompt_edges == ()
    assert set(fit.table.tokens) == {"*", "chat"}
    own = rows["output_tokens"].quantile(0.5, interpolation="linear")
    assert own is not None
    assert fit.table.quantile("chat", 500, 0.5) == pytest.approx(own, rel=0.1)
    assert_no_crossing(fit.table)


def test_one_class_and_equal_prompts_work() -> None:
    rows = requests(np.random.default_rng(6), 400, shares=(1.0, 0.0, 0.0)).with_columns(prompt_tokens=pl.lit(64))
    fit = fit_length(rows, seed=1)
    assert fit.method == "lightgbm"
    assert fit.table.quantile("chat", 64, 0.9) > fit.table.quantile("chat", 64, 0.5)


def test_a_class_with_few_rows_leans_on_all() -> None:
    rng = np.random.default_rng(7)
    rows = pl.concat([requests(rng, 2000, shares=(1.0, 0.0, 0.0)), requests(rng, 6, shares=(0.0, 0.0, 1.0))])
    fit = fit_length(rows, seed=1)
    assert all(0.3 < factor < 3.0 for factor in fit.table.offset["long"])


def test_unfinished_requests_say_nothing_and_censored_ones_are_counted() -> None:
    rows = requests(np.random.default_rng(8), 3000)
    capped = rows.with_columns(
        max_output_tokens=pl.lit(900),
        output_tokens=pl.min_horizontal("output_tokens", 905),
        finish_reason=pl.when(pl.col("output_tokens") > 900).then(pl.lit("length")).otherwise(pl.col("finish_reason")),
    )
    lost = rows.head(300).with_columns(output_tokens=pl.lit(1), finish_reason=pl.lit("cancelled"))
    unknown = rows.head(5).with_columns(output_tokens=pl.lit(None, pl.Int64))
    fit = fit_length(pl.concat([capped, lost, unknown], how="vertical_relaxed"), seed=1)
    assert (fit.rows, fit.excluded) == (3000, 305)
    assert fit.censored == capped.filter(pl.col("finish_reason") == "length").height > 0
    assert fit.table == fit_length(capped, seed=1).table
    batch = {s.level: s for s in fit.scores if s.slo_class == "batch"}
    assert batch[0.9].censored_frac > 0.1
    assert fit.table.quantile("batch", 20_000, 0.95) < 900 * 1.2


def test_a_cut_output_below_its_limit_was_cancelled() -> None:
    rows = requests(np.random.default_rng(8), 1000)
    limit = pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.col("output_tokens")).otherwise(10**7)
    cut = rows.with_columns(max_output_tokens=limit, censored=pl.int_range(pl.len()) < 100).drop("finish_reason")
    fit = fit_length(cut, seed=1)
    assert (fit.rows, fit.excluded, fit.censored) == (950, 50, 50)


def test_requests_without_class_count_for_all() -> None:
    rows = requests(np.random.default_rng(9), 600).with_columns(slo_class=pl.lit(None, pl.String))
    fit = fit_length(rows, seed=1)
    assert set(fit.table.tokens) == {"*"}
    assert {score.slo_class for score in fit.scores} == {"*"}
    assert fit.table.quantile("anything", 100, 0.8) > 0


def test_the_same_rows_give_the_same_table() -> None:
    rows = requests(np.random.default_rng(10), 1500)
    first = fit_length(rows, seed=3)
    assert fit_length(rows.sample(fraction=1.0, shuffle=True, seed=2), seed=3) == first


@pytest.mark.parametrize(
    ("rows", "levels", "text"),
    [
        (requests(np.random.default_rng(1), 19), LEVELS, "at least 20"),
        (requests(np.random.default_rng(1), 100), (0.9, 0.5), "ascend"),
        (requests(np.random.default_rng(1), 100), (), "ascend"),
        (requests(np.random.default_rng(1), 100).drop("finish_reason"), LEVELS, "finish_reason"),
        (requests(np.random.default_rng(1), 100).drop("slo_class"), LEVELS, "missing"),
        (requests(np.random.default_rng(1), 100).with_columns(slo_class=pl.lit("*")), LEVELS, "all classes"),
        (requests(np.random.default_rng(1), 100).with_columns(output_tokens=pl.lit(-1)), LEVELS, "output >= 0"),
    ],
)
def test_bad_tables_are_refused(rows: pl.DataFrame, levels: tuple[float, ...], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        fit_length(rows, levels=levels, seed=1)
