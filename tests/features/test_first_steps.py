"""Steps of a D that follow from the requests that joined them, against a D that was run step by step."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from features.first_steps import first_steps
from features.landings import with_landings
from features.schemas import with_all_columns
from features.step_sources import decode_table
from tests.features.decoding import START_US, decode
from tests.features.test_step_sources import NO_STEPS

NO_LOADS = with_all_columns("node_loads", pl.DataFrame())


def law_us(sequences: int, tokens: int) -> int:
    return 5_000 + 40 * sequences + tokens // 50


@pytest.mark.parametrize(("seed", "gap_us"), [(1, 2_000_000.0), (2, 300_000.0), (3, 60_000.0)])
def test_every_step_that_requests_joined_is_found(seed: int, gap_us: float) -> None:
    truth = decode(300, law_us, seed=seed, gap_us=gap_us)
    found = first_steps(truth.requests)
    assert found["n_steps"].to_list() == [1] * len(truth.steps)
    assert found["busy_us"].to_list() == [took for _, took, _, _ in truth.steps]
    assert found["observed_at_us"].to_list() == [start + took for start, took, _, _ in truth.steps]
    assert found["sequences"].to_list() == [float(n) for _, _, n, _ in truth.steps]
    true_tokens = np.array([tokens for *_, tokens in truth.steps])
    # Tokens between a request's first and last are interpolated.
    assert np.quantile(np.abs(found["tokens"].to_numpy() / true_tokens - 1), 0.9) < 0.004


def test_requests_whose_first_token_came_from_elsewhere_tell_no_step() -> None:
    truth = decode(100, law_us, seed=4, gap_us=300_000.0)
    slow = truth.requests.with_columns(first_token_at_us=pl.col("decode_admitted_at_us") + 400_000).filter(
        pl.col("finished_at_us") > pl.col("first_token_at_us")
    )
    assert first_steps(slow).is_empty()
    assert first_steps(truth.requests.with_columns(first_token_at_us=pl.lit(None, pl.Int64))).is_empty()


def test_who_is_kept_waiting_does_not_lengthen_the_step_of_the_others() -> None:
    truth = decode(200, law_us, seed=5, gap_us=100_000.0)
    shared = truth.requests.group_by("decode_admitted_at_us").len().filter(pl.col("len") > 1)
    assert shared.height > 5
    late = pl.col("request_id") == pl.col("request_id").max().over("decode_admitted_at_us")
    held = late & (pl.len().over("decode_admitted_at_us") > 1)
    rows = truth.requests.with_columns(
        first_token_at_us=pl.when(held).then(pl.col("first_token_at_us") + 1).otherwise("first_token_at_us")
    )
    assert first_steps(rows)["busy_us"].equals(first_steps(truth.requests)["busy_us"])


def test_a_d_that_nothing_else_tells_of_is_seen_through_them() -> None:
    truth = decode(60, law_us, seed=6, gap_us=300_000.0)
    table = decode_table(NO_LOADS, NO_STEPS, truth.requests)
    assert set(table["source"]) == {"first_steps"}
    assert table.height == len(truth.steps)


def test_landings_are_half_a_step_before_the_activation_or_at_it() -> None:
    truth = decode(300, law_us, seed=7, gap_us=400_000.0)
    found = with_landings(truth.requests, 10.0)
    true = np.array([row["_landed"] for row in truth.rows])
    off = found["transfer_finished_at_us"].to_numpy() - true
    idle = found["decode_admitted_at_us"].to_numpy() == true
    assert idle.sum() > 20
    assert np.all(off[idle] == 0)
    steps = found["first_token_at_us"].to_numpy() - found["decode_admitted_at_us"].to_numpy()
    assert abs(np.mean(off[~idle]) / np.mean(steps[~idle])) < 0.1
    assert found["transferred_bytes"].to_list() == [10 * row["prompt_tokens"] for row in truth.rows]


def test_a_known_end_of_a_transfer_stays() -> None:
    truth = decode(5, law_us, seed=8, gap_us=400_000.0)
    known = truth.requests.with_columns(
        transfer_finished_at_us=pl.lit(START_US, pl.Int64), transferred_bytes=pl.lit(7, pl.Int64)
    )
    assert with_landings(known, 10.0).equals(known)


def test_what_ran_beside_a_request_that_the_log_does_not_see_end_is_left_out() -> None:
    truth = decode(400, law_us, seed=9, gap_us=60_000.0)
    until = int(np.sort(truth.requests["finished_at_us"].to_numpy())[250])
    cut = truth.requests.filter(pl.col("decode_admitted_at_us") < until).with_columns(
        pl.when(pl.col(name) < until).then(pl.col(name)).alias(name) for name in ("first_token_at_us", "finished_at_us")
    )
    running = cut.filter(pl.col("finished_at_us").is_null())["decode_admitted_at_us"].min()
    found = first_steps(cut)
    known = [step for step in truth.steps if step[0] + step[1] <= running]
    assert found["sequences"].to_list() == [float(n) for _, _, n, _ in known]
    assert found.height > 50
    lost = truth.requests.with_columns(
        finished_at_us=pl.when(pl.col("request_id") == "d0-0003").then(None).otherwise("finished_at_us")
    )
    assert first_steps(lost).height > 0.9 * len(truth.steps)
