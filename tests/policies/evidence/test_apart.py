"""Differences to a log with their intervals: none where nothing differs, wide where little is known, right as often as
they say.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.evidence.apart import Apart, Compared, differences

KEYS = {"ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99", "hit_share"}


def compared(
    requests: int = 2000, blocks: int = 40, replays: int = 1, *, seed: int = 0, luck: float = 0.0, factor: float = 1.0
) -> Compared:
    """Replays of one log, `factor` times as slow; `luck`: spread of a block of the log and of each replay, in logs."""
    rng = np.random.default_rng(seed)
    request = np.tile(np.arange(requests), replays)
    replay = np.repeat(np.arange(replays), requests)
    block = request * blocks // requests
    prompt = rng.integers(100, 4000, requests).astype(float)[request]
    ttft, tpot = rng.lognormal(-1, 0.5, requests)[request], rng.lognormal(-4, 0.2, requests)[request]
    cached = 64 * (1 + request % 3).astype(float)

    def lucky(draws: int) -> np.ndarray:
        return np.exp(rng.normal(0, luck, (draws, blocks)))

    log, each = lucky(1)[0, block], factor * lucky(replays)[replay, block]
    return Compared(
        request, block, replay, prompt, ttft * each, tpot * each, cached, ttft * log, tpot * log, cached.copy()
    )


@given(
    st.integers(1, 400), st.integers(1, 30), st.integers(1, 4), st.integers(0, 99), st.floats(0, 0.3), st.floats(0.5, 2)
)
@settings(max_examples=40, deadline=None)
def test_an_interval_holds_its_difference(
    requests: int, blocks: int, replays: int, seed: int, luck: float, factor: float
) -> None:
    rows = compared(requests, blocks, replays, seed=seed, luck=luck, factor=factor)
    found = differences(rows, alpha=0.025, seed=seed)
    assert set(found) == KEYS
    for each in found.values():
        assert each.low <= each.value <= each.high
    assert found["ttft_p99"].value == pytest.approx(
        np.quantile(rows.ttft_s, 0.99) / np.quantile(rows.logged_ttft_s, 0.99) - 1
    )
    assert found == differences(rows, alpha=0.025, seed=seed)


@pytest.mark.parametrize("replays", [1, 5])
def test_a_replay_that_is_the_log_is_not_apart_at_all(replays: int) -> None:
    found = differences(compared(replays=replays), alpha=0.025, seed=3)
    assert set(found.values()) == {Apart(0.0, 0.0, 0.0)}


def test_few_blocks_and_few_replays_make_it_wide() -> None:
    def width(blocks: int, replays: int = 1) -> float:
        found = differences(compared(blocks=blocks, replays=replays, luck=0.1), alpha=0.025, seed=1)["ttft_p50"]
        return found.high - found.low

    assert width(4) > 2 * width(40)
    assert width(40) > width(40, replays=5)
    alone = differences(compared(blocks=1, factor=1.5), alpha=0.025, seed=1)["ttft_p50"]
    assert (alone.low, alone.high) == (-1.0, 1.0)


def test_what_replays_differ_by_widens_it_too() -> None:
    rows = compared(replays=3)
    by_replay = np.array([0.9, 1.0, 1.1])[rows.replay]
    apart = Compared(*(getattr(rows, n) * (by_replay if n == "ttft_s" else 1) for n in Compared.__slots__))
    found = differences(apart, alpha=0.025, seed=1)
    assert found["ttft_p50"].low < -0.05
    assert found["ttft_p50"].high > 0.05
    assert found["tpot_p50"] == Apart(0.0, 0.0, 0.0)


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    rows = [compared(600, 30, seed=s, luck=0.1, factor=1.1) for s in range(100)]
    held = [differences(each, alpha=0.05, seed=at)["ttft_p50"] for at, each in enumerate(rows)]
    assert np.mean([each.low <= 0.1 <= each.high for each in held]) == pytest.approx(0.90, abs=0.07)


def test_unknown_cached_tokens_leave_the_hit_share_out() -> None:
    rows = compared()
    unknown = np.full(len(rows.request), np.nan)
    known = np.where(rows.request < 100, rows.logged_cached_tokens - 10, np.nan)
    of = {n: getattr(rows, n) for n in Compared.__slots__}
    assert set(differences(Compared(**of | {"logged_cached_tokens": unknown}), alpha=0.025, seed=1)) == KEYS - {
        "hit_share"
    }
    found = differences(Compared(**of | {"logged_cached_tokens": known}), alpha=0.025, seed=1)["hit_share"]
    assert found.value == pytest.approx(10 * 100 / rows.prompt_tokens[:100].sum())


@pytest.mark.parametrize(
    ("each", "value", "interval"),
    [
        (Apart(0.2, 0.12, 0.3), 2.0, (1.2, 3.0)),
        (Apart(-0.2, -0.3, -0.12), 2.0, (1.2, 3.0)),
        (Apart(-0.2, -0.3, 0.1), 2.0, (0.0, 3.0)),
    ],
)
def test_a_difference_over_its_limit(each: Apart, value: float, interval: tuple[float, float]) -> None:
    found = each.over(0.1)
    assert (found[0], *found[1]) == pytest.approx((value, *interval))


def test_it_is_fast_enough_for_every_night() -> None:
    rows = compared(20_000, 120, 5, luck=0.1)
    began = time.perf_counter()
    differences(rows, alpha=0.025, seed=1)
    assert time.perf_counter() - began < 3.0  # 0.3 s on an idle core
