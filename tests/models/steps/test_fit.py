"""Step laws are recovered from truths outside their family, and bad tables are named."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest

from features.errors import ModelError
from models.metrics import ApeSummary
from models.portable.steps import ANY, StepLaw, StepLaws, one_type
from models.portable.trees import table_of
from models.steps.cells import StepCell, decode_cells, over_cells, prefill_cells
from models.steps.fit import StepFit, fit_decode, fit_prefill
from tests.models.synthetic import DECODE_TRUTH, NODES, PREFILL_TRUTH, SIGMA, decode_windows, prefill_windows


@cache
def prefill_data(seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    rng = np.random.default_rng(seed)
    return prefill_windows(rng, 2500), prefill_windows(rng, 5000)


@cache
def decode_data(seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    rng = np.random.default_rng(seed)
    return decode_windows(rng, 1500), decode_windows(rng, 2500)


def held_out(train: pl.DataFrame, test: pl.DataFrame, kind: str, *, node_effects: bool = True) -> ApeSummary:
    """Errors over cells of `test` against the noise-free truth, a third of them without any row in training."""
    size = "new_tokens" if kind == "prefill" else "sequences"
    per_step = pl.col(size) / (pl.col("n_steps") if kind == "prefill" else 1)
    key = (per_step.log(2).floor().cast(pl.Int64) + pl.col("node").str.slice(1, 1).cast(pl.Int64)) % 3
    if kind == "prefill":
        law = fit_prefill(train.filter(key != 0), node_effects=node_effects).laws
        cells = prefill_cells(law, test.filter(key == 0), truth=PREFILL_TRUTH, min_steps=100)
    else:
        law = fit_decode(train.filter(key != 0), node_effects=node_effects).laws
        cells = decode_cells(law, test.filter(key == 0), truth=DECODE_TRUTH, min_steps=100)
    assert len(cells) >= 15
    assert {cell.node for cell in cells} == set(NODES)
    return over_cells(cells)


def within_the_bar(errors: ApeSummary) -> bool:
    return errors.median_ape_frac <= 0.05 and errors.p90_ape_frac <= 0.15 and abs(errors.signed_median_frac) <= 0.02


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("kind", ["prefill", "decode"])
def test_the_truth_is_recovered_on_cells_never_seen(kind: str, seed: int) -> None:
    train, test = prefill_data(seed) if kind == "prefill" else decode_data(seed)
    errors = held_out(train, test, kind)
    assert within_the_bar(errors), errors


@pytest.mark.parametrize("kind", ["prefill", "decode"])
def test_a_fit_without_node_effects_misses_the_bar(kind: str) -> None:
    train, test = prefill_data(1) if kind == "prefill" else decode_data(1)
    errors = held_out(train, test, kind, node_effects=False)
    assert errors.p90_ape_frac > 0.15, errors


def test_slow_nodes_are_found_and_the_median_node_has_factor_one() -> None:
    fit = fit_decode(decode_data(1)[0])
    assert fit.laws.node_factor[NODES[1]] == pytest.approx(1.3, rel=0.02)
    assert fit.laws.node_factor[NODES[6]] == pytest.approx(1.25, rel=0.02)
    assert np.median(np.log(list(fit.laws.node_factor.values()))) == pytest.approx(0.0, abs=1e-12)
    assert sum(fit.node_rows.values()) == fit.rows == 1500


@pytest.mark.parametrize("kind", ["prefill", "decode"])
def test_sigma_is_that_of_single_steps(kind: str) -> None:
    fit = fit_prefill(prefill_data(1)[0]) if kind == "prefill" else fit_decode(decode_data(1)[0])
    assert SIGMA * 0.9 <= fit.laws.by_type[ANY].sigma <= SIGMA * 1.35


def test_rows_out_of_line_do_not_move_the_law() -> None:
    train = decode_data(1)[0]
    stalled = pl.int_range(pl.len()) % 33 == 0
    spoilt = train.with_columns(pl.when(stalled).then(pl.col("busy_us") * 10).otherwise(pl.col("busy_us")))
    clean, robust = fit_decode(train), fit_decode(spoilt)
    assert robust.trimmed >= train.height // 34
    for n, t in [(4, 8_000), (20, 60_000), (80, 300_000)]:
        assert robust.laws.decode_s("x", n, t) == pytest.approx(clean.laws.decode_s("x", n, t), rel=0.015)


def test_a_node_with_two_rows_stays_near_one() -> None:
    train = decode_data(1)[0]
    odd = train.head(2).with_columns(node=pl.lit("new/dp0"), busy_us=pl.col("busy_us") * 2)
    fit = fit_decode(pl.concat([train, odd]))
    assert fit.laws.node_factor["new/dp0"] < 1.4
    assert fit.node_rows["new/dp0"] == 2


@pytest.mark.parametrize("curve", [-6.0e-14, 0.0, 9.0e-14, -1.2e-13])
def test_decode_never_falls_up_to_its_cap(curve: float) -> None:
    truth = one_type(StepLaw((0.006, 1e-5, 6e-8, curve), token_cap=300_000.0))
    law = fit_decode(decode_windows(np.random.default_rng(7), 400, truth=truth), residual=False).laws.by_type[ANY]
    assert law.token_cap is not None
    seconds = np.array([law.decode_s(10, t) for t in np.linspace(0, 1.5 * law.token_cap, 200)])
    assert (np.diff(seconds) >= -1e-15).all()
    assert law.coef[0] >= 0
    assert law.coef[1] >= 0


def test_capacity_is_where_the_law_is_clipped() -> None:
    law = fit_decode(decode_data(1)[0], capacity_tokens=640_000.0, residual=False).laws.by_type[ANY]
    assert law.token_cap == 640_000.0
    assert law.decode_s(5, 640_000) == law.decode_s(5, 900_000)


def test_exact_laws_come_back_without_noise() -> None:
    rng = np.random.default_rng(3)
    tokens = rng.integers(10, 8192, 300)
    chunk_context = tokens * rng.integers(0, 3, 300) * 4096
    seconds = 0.02 + 1.4e-5 * tokens + 5e-10 * tokens**2 + 7e-10 * chunk_context
    rows = pl.DataFrame(
        {
            "node": [f"p{i % 3}" for i in range(300)],
            "n_steps": 1,
            "busy_us": seconds * 1e6,
            "new_tokens": tokens,
            "sum_t2": tokens**2,
            "sum_chunk_context": chunk_context,
        }
    )
    law = fit_prefill(rows, residual=False).laws.by_type[ANY]
    for t, context in [(64, 0), (2000, 0), (2000, 8192), (8000, 4096)]:
        true = 0.02 + 1.4e-5 * t + 5e-10 * t**2 + 7e-10 * t * context
        assert law.prefill_s(t, t * context) == pytest.approx(true, rel=2e-4)


def test_order_of_rows_and_repetition_change_nothing() -> None:
    train = decode_data(2)[0]
    first = fit_decode(train)
    assert fit_decode(train.sample(fraction=1.0, shuffle=True, seed=5)) == first
    assert fit_decode(train) == first


def test_errors_are_reported_by_cell() -> None:
    fit: StepFit = fit_prefill(prefill_data(1)[0])
    assert sum(cell.error.count for cell in fit.cells) == fit.rows - fit.trimmed
    assert {cell.node for cell in fit.cells} == set(NODES)
    edges = {cell.size_from for cell in fit.cells} | {cell.context_from for cell in fit.cells}
    assert all(edge == 0 or edge & (edge - 1) == 0 for edge in edges)
    assert all(isinstance(cell, StepCell) for cell in fit.cells)
    assert fit.error.median_ape_frac < 0.08


def test_idle_windows_are_counted_and_ignored() -> None:
    train = decode_data(1)[0]
    idle = train.head(7).with_columns(n_steps=pl.lit(0, pl.Int64), busy_us=pl.lit(0, pl.Int64))
    unknown = train.tail(4).with_columns(tokens=pl.lit(None, pl.Float64))
    fit = fit_decode(pl.concat([train, idle, unknown]))
    assert fit.unusable == 11
    assert fit.laws == fit_decode(train).laws


BAD = [
    (lambda t: t.drop("tokens"), "missing"),
    (lambda t: t.head(19), "at least 20"),
    (lambda t: t.with_columns(tokens=pl.col("tokens").cast(pl.String)), "numeric"),
    (lambda t: t.with_columns(tokens=pl.lit(None, pl.Float64)), "1500 without"),
    (lambda t: t.with_columns(node=pl.lit(None, pl.String)), "no nulls"),
    (lambda t: t.with_columns(node=pl.lit(3)), "text"),
    (lambda t: t.with_columns(tokens=-pl.col("tokens")), "tokens >= 0"),
    (lambda t: t.with_columns(tokens=pl.lit(float("nan"))), "finite"),
]


@pytest.mark.parametrize(("spoil", "text"), BAD)
def test_a_table_that_breaks_its_contract_is_refused(spoil: object, text: str) -> None:
    assert callable(spoil)
    with pytest.raises(ModelError, match=text):
        fit_decode(spoil(decode_data(1)[0]))


def test_impossible_sums_of_squares_are_refused() -> None:
    with pytest.raises(ModelError, match="sum_t2"):
        fit_prefill(prefill_data(1)[0].with_columns(sum_t2=pl.col("new_tokens")))


def test_more_sequences_cost_more_beyond_what_was_measured() -> None:
    """The last measured segment may be flat (a kink that falls there); what is beyond it goes on with the whole law."""
    fit = fit_decode(decode_windows(np.random.default_rng(7), 900, truth=flat_at_the_end()), residual=False)
    law = fit.laws.by_type[ANY]
    last = law.measured[0][1]
    true = flat_at_the_end().by_type[ANY].coef[1]
    assert law.decode_s(3 * last, 1e5) - law.decode_s(last, 1e5) >= 0.5 * true * 2 * last


def flat_at_the_end() -> StepLaws:
    """A decode law whose largest batches run faster than those before."""
    trees = table_of(0, (40.0, 60.0, 80.0, 100.0), (1.0, 0.9, 0.8, 0.7, 0.6))
    return one_type(StepLaw((0.006, 1e-4, 2e-8, 0.0), trees=trees, token_cap=5e5))


@pytest.mark.parametrize(
    ("column", "value", "place"),
    [
        ("n_steps", 2**40, "prefill_steps.busy_us"),
        ("busy_us", 2**62, "prefill_steps.busy_us"),
        ("new_tokens", 1e200, "prefill_steps.new_tokens"),
    ],
)
def test_numbers_out_of_all_proportion_are_named(column: str, value: float, place: str) -> None:
    rows = prefill_windows(np.random.default_rng(1), 60).with_columns(pl.lit(value).alias(column))
    with pytest.raises(ModelError) as caught:
        fit_prefill(rows)
    assert caught.value.place == place


def test_a_column_without_a_type_is_unknown() -> None:
    rows = prefill_windows(np.random.default_rng(1), 60)
    assert fit_prefill(rows.with_columns(pl.lit(None).alias("prompts"))).laws == fit_prefill(rows).laws
