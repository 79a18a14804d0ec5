"""Length laws cover what they claim, group by group, on requests that they never saw."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from pydantic import TypeAdapter

from features.errors import ModelError
from models.length import fit
from models.length.fit import LEVELS, LengthFit, fit_length
from models.length.online import frozen_quantiles
from models.length.rows import read_lengths
from models.length.scores import LengthScore, score_length
from models.portable.length import ALL, Arrival, LengthLaw
from tests.models.length.samples import everything, requests


@pytest.fixture(scope="module")
def fitted() -> LengthFit:
    return fit_length(requests(np.random.default_rng(1), 8000), seed=1)


@pytest.fixture(scope="module")
def many() -> LengthFit:
    """Of requests with every column."""
    return fit_length(everything(np.random.default_rng(4), 4000), seed=1)


def at_level(scores: tuple[LengthScore, ...], level: float) -> dict[str, LengthScore]:
    return {score.slo_class: score for score in scores if score.level == level}


def test_each_class_is_covered_on_later_requests(fitted: LengthFit) -> None:
    assert fitted.method == "lightgbm"
    assert (fitted.rows, fitted.trained_rows, fitted.offset_rows) == (8000, 6800, 1200)
    for score in score_length(fitted.law, requests(np.random.default_rng(2), 10_000)):
        slack = max(0.03, 3 * math.sqrt(score.level * (1 - score.level) / score.rows))
        assert abs(score.coverage.covered_frac - score.level) <= slack, score
        assert score.coverage.low_frac <= score.coverage.covered_frac <= score.coverage.high_frac


def test_levels_never_cross(fitted: LengthFit) -> None:
    rows = read_lengths(requests(np.random.default_rng(3), 3000))
    assert (np.diff(frozen_quantiles(fitted.law, rows), axis=1) >= 0.0).all()


def test_the_table_loses_little_against_the_model(fitted: LengthFit) -> None:
    for shipped, full in zip(fitted.shipped_pinball, fitted.full_pinball, strict=True):
        assert shipped < 1.03 * full


def test_a_law_is_small(fitted: LengthFit, many: LengthFit) -> None:
    for found in (many.law, fitted.law):
        assert len(TypeAdapter(LengthLaw).dump_json(found)) < 100_000
        assert TypeAdapter(LengthLaw).validate_json(TypeAdapter(LengthLaw).dump_json(found)) == found


def test_the_table_knows_more_than_its_classes(fitted: LengthFit) -> None:
    rng = np.random.default_rng(5)
    blind = fit_length(requests(rng, 8000).with_columns(prompt_tokens=pl.lit(100)), seed=1)
    test = requests(rng, 4000)
    informed, without = (at_level(score_length(law, test), 0.9) for law in (fitted.law, blind.law))
    assert informed["long"].pinball_tokens < 0.75 * without["long"].pinball_tokens
    assert informed[ALL].pinball_tokens < without[ALL].pinball_tokens
    assert informed[ALL].crps_tokens < without[ALL].crps_tokens
    assert 1.0 < informed["chat"].reserve_ratio < 3.0


def test_newest_rows_move_the_offsets(fitted: LengthFit) -> None:
    table = requests(np.random.default_rng(1), 8000)
    late = pl.int_range(pl.len()) >= 6800
    longer = table.with_columns(pl.when(late).then(pl.col("output_tokens") * 2).otherwise("output_tokens"))
    law, chat = fit_length(longer, seed=1).law, Arrival("chat", 1000)
    assert law.quantile(chat, 0.5) == pytest.approx(2.0 * fitted.law.quantile(chat, 0.5), rel=0.2)


def test_an_app_that_is_new_in_the_newest_rows_is_covered() -> None:
    def with_app(table: pl.DataFrame, first: int) -> pl.DataFrame:
        new = (pl.int_range(pl.len()) >= first) & (pl.int_range(pl.len()) % 3 == 0)
        longer = pl.when(new).then(pl.col("output_tokens") * 5).otherwise("output_tokens")
        return table.with_columns(longer, app=pl.when(new).then(pl.lit("new")))

    rng = np.random.default_rng(13)
    law = fit_length(with_app(requests(rng, 5000, shares=(1.0, 0.0, 0.0)), 4300), seed=1).law
    later = score_length(law, with_app(requests(rng, 3000, shares=(1.0, 0.0, 0.0)), 0))
    assert at_level(later, 0.9)["chat/new"].coverage.covered_frac == pytest.approx(0.9, abs=0.05)


def test_an_app_has_a_group_of_its_own_and_an_unknown_one_its_class(many: LengthFit) -> None:
    law = many.law
    assert {"chat/a", "chat/b", "chat", ALL} <= set(law.offset)
    assert law.tenant_effect["t1"] > 0.2 > law.tenant_effect["t2"]
    known, new = (Arrival("chat", 1000, app=name) for name in ("b", "never seen"))
    assert law.group(new).split("|")[0] == "chat"
    assert law.group(Arrival("new class", 1000, app="b")).split("|")[0] == ALL
    assert law.quantile(known, 0.5) > 1.1 * law.quantile(new, 0.5)
    tenants = [law.inputs(Arrival("chat", 1000, app="b", tenant=name)) for name in (None, "never seen")]
    assert repr(tenants[0]) == repr(tenants[1])


@pytest.mark.parametrize("count", [20, 60, 199])
def test_few_rows_give_plain_quantiles(count: int) -> None:
    rows = requests(np.random.default_rng(5), count, shares=(1.0, 0.0, 0.0))
    found = fit_length(rows, seed=1)
    assert (found.method, found.full, found.offset_rows) == ("empirical", None, 0)
    assert len(found.law.rows) == 1
    own = rows["output_tokens"].quantile(0.5, interpolation="linear")
    assert own is not None
    assert found.law.quantile(Arrival("chat", 500), 0.5) == pytest.approx(own, rel=0.15)
    assert found.law.quantile(Arrival("chat", 500), 0.9) >= found.law.quantile(Arrival("chat", 500), 0.8)


def test_one_class_and_equal_prompts_work() -> None:
    rows = requests(np.random.default_rng(6), 400, shares=(1.0, 0.0, 0.0)).with_columns(prompt_tokens=pl.lit(64))
    found = fit_length(rows, seed=1)
    assert found.method == "lightgbm"
    assert found.law.quantile(Arrival("chat", 64), 0.9) > found.law.quantile(Arrival("chat", 64), 0.5)


def test_equal_answers_work() -> None:
    rows = requests(np.random.default_rng(6), 400).with_columns(output_tokens=pl.lit(1))
    found = fit_length(rows, seed=1)
    assert found.law.quantiles(Arrival("chat", 64)) == pytest.approx([1.0] * len(LEVELS), rel=1e-3)


def test_unfinished_requests_say_nothing_and_censored_ones_are_counted() -> None:
    rows = requests(np.random.default_rng(8), 3000)
    capped = rows.with_columns(
        max_output_tokens=pl.lit(900),
        output_tokens=pl.min_horizontal("output_tokens", 905),
        finish_reason=pl.when(pl.col("output_tokens") > 900).then(pl.lit("length")).otherwise(pl.col("finish_reason")),
    )
    lost = rows.head(300).with_columns(output_tokens=pl.lit(1), finish_reason=pl.lit("cancelled"))
    unknown = rows.head(5).with_columns(output_tokens=pl.lit(None, pl.Int64))
    found = fit_length(pl.concat([capped, lost, unknown], how="vertical_relaxed"), seed=1)
    assert (found.rows, found.excluded) == (3000, 305)
    assert found.censored == capped.filter(pl.col("finish_reason") == "length").height > 0
    assert found.law == fit_length(capped, seed=1).law
    assert at_level(found.scores, 0.9)["batch"].censored_frac > 0.1
    assert found.law.quantile(Arrival("batch", 20_000, max_output_tokens=900), 0.95) <= 900


def test_a_limit_says_nothing_about_longer_ones() -> None:
    """Half of the requests may have 300 tokens, half as many as they like: the quantile of the latter stays whole."""
    rows = requests(np.random.default_rng(9), 6000, shares=(0.0, 1.0, 0.0))
    output, limit = pl.col("output_tokens"), pl.when(pl.int_range(pl.len()) % 2 == 0).then(300).otherwise(10**6)
    cut = rows.with_columns(
        pl.min_horizontal(output, limit),
        max_output_tokens=limit,
        finish_reason=pl.when(output >= limit).then(pl.lit("length")).otherwise(pl.lit("stop")),
    )
    found = fit_length(cut, seed=1)
    whole = fit_length(rows, seed=1)
    free = found.law.quantile(Arrival("batch", 3000, max_output_tokens=10**6), 0.9)
    assert free == pytest.approx(whole.law.quantile(Arrival("batch", 3000, max_output_tokens=10**6), 0.9), rel=0.25)


def test_a_cut_output_below_its_limit_was_cancelled() -> None:
    rows = requests(np.random.default_rng(8), 1000)
    limit = pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.col("output_tokens")).otherwise(10**7)
    cut = rows.with_columns(max_output_tokens=limit, censored=pl.int_range(pl.len()) < 100).drop("finish_reason")
    found = fit_length(cut, seed=1)
    assert (found.rows, found.excluded, found.censored) == (950, 50, 50)


def test_requests_without_class_count_for_all() -> None:
    rows = requests(np.random.default_rng(9), 600).with_columns(slo_class=pl.lit(None, pl.String))
    found = fit_length(rows, seed=1)
    assert {name.split("|")[0] for name in found.law.offset} == {ALL}
    assert {score.slo_class for score in found.scores} == {ALL}
    assert found.law.quantile(Arrival("anything", 100), 0.8) > 0


def test_the_hour_is_read_from_two_days_on() -> None:
    hours = requests(np.random.default_rng(11), 4000).with_columns(
        arrived_at_us=pl.int_range(pl.len()) * 60_000_000, hour=pl.int_range(pl.len()) / 60 % 24
    )
    loud = pl.when(pl.col("hour") < 12).then(pl.col("output_tokens") * 8).otherwise("output_tokens")
    days = fit_length(hours.with_columns(output_tokens=loud).drop("ended_at_us"), seed=1).law
    asked = [days.base(Arrival("chat", 1000, hour=hour)) for hour in (6.0, 18.0)]
    assert asked[0][0] > 3.0 * asked[1][0]
    one = fit_length(hours.head(1400).with_columns(output_tokens=loud).drop("ended_at_us"), seed=1).law
    assert one.base(Arrival("chat", 1000, hour=6.0)) == one.base(Arrival("chat", 1000, hour=18.0))


def test_the_same_rows_give_the_same_law() -> None:
    rows = everything(np.random.default_rng(10), 600)
    first = fit_length(rows, seed=3)
    assert fit_length(rows.sample(fraction=1.0, shuffle=True, seed=2), seed=3) == first


def test_a_long_log_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "TRAIN_ROWS", 1000)
    monkeypatch.setattr(fit, "TRAIN_LEAST", 200)
    found = fit_length(requests(np.random.default_rng(12), 8000), seed=1)
    assert found.rows == 8000
    assert 900 < found.trained_rows < 1300
    assert at_level(found.scores, 0.9)[ALL].coverage.covered_frac == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize(
    ("rows", "levels", "text"),
    [
        (requests(np.random.default_rng(1), 19), LEVELS, "at least 20"),
        (requests(np.random.default_rng(1), 100), (0.9, 0.5), "ascend"),
        (requests(np.random.default_rng(1), 100), (), "ascend"),
        (requests(np.random.default_rng(1), 100).drop("finish_reason"), LEVELS, "finish_reason"),
        (requests(np.random.default_rng(1), 100).drop("slo_class"), LEVELS, "missing"),
        (requests(np.random.default_rng(1), 100).with_columns(slo_class=pl.lit("*")), LEVELS, "all classes"),
        (requests(np.random.default_rng(1), 100).with_columns(output_tokens=pl.lit(-1)), LEVELS, "output_tokens >= 0"),
        (requests(np.random.default_rng(1), 100).with_columns(cached_frac=pl.lit(-0.1)), LEVELS, "cached_frac >= 0"),
    ],
)
def test_bad_tables_are_refused(rows: pl.DataFrame, levels: tuple[float, ...], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        fit_length(rows, levels=levels, seed=1)
