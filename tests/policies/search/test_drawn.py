"""Drawn lengths: medians stay each request's own, ratios to them move within the group, nothing else changes."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.lengths import MEDIAN, constant_length, length_rows, tokens_at
from policies.search.drawn import with_drawn_lengths
from policies.twin.workload import Workload
from tests.policies import world
from tests.policies.twin.scenarios import make_arrivals, make_lengths

CLASSES = ("chat", "batch")


def random_traffic(seed: int, requests: int) -> tuple[Workload, np.random.Generator]:
    rng = np.random.default_rng(seed)
    load = world.workload(requests, seed=seed, warm_up=requests // 5)
    return replace(load, arrivals=make_arrivals(rng, requests)), rng


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), draw=st.integers(1, 9))
def test_every_length_is_a_median_times_the_ratio_of_one_of_its_group(seed: int, draw: int) -> None:
    load, rng = random_traffic(seed, 60)
    rows = length_rows(make_lengths(rng), CLASSES, load)
    found = with_drawn_lengths(load, rows, seed=3, draw=draw)
    assert found.output_tokens.dtype == np.int32
    for f in fields(Workload):
        if f.name not in ("output_tokens", "arrivals"):
            np.testing.assert_array_equal(getattr(found, f.name), getattr(load, f.name))
    median = np.maximum(tokens_at(rows, (MEDIAN,), np.zeros(60, np.int32)), 1.0)
    ratio, lends = load.output_tokens / median, rows.learned > 0
    for i in range(60):
        if not (lends[i] or load.scored[i]):
            assert found.output_tokens[i] == load.output_tokens[i]
            continue
        group = lends & (rows.group == rows.group[i])
        lenders = ratio[group if group.any() else lends]
        able = np.maximum(np.floor(np.minimum(median[i] * lenders, rows.cap[i]) + 0.5), 1)
        assert found.output_tokens[i] in able
    again = with_drawn_lengths(load, rows, seed=3, draw=draw)
    np.testing.assert_array_equal(found.output_tokens, again.output_tokens)


def test_draws_differ_and_keep_the_spread_of_each_group() -> None:
    load = world.workload(6_000, seed=4)
    # Answers of batch are four times as long, and the law knows only half of it.
    output = np.where(load.class_index == 1, 4, 1) * load.output_tokens
    load = replace(load, output_tokens=output.astype(np.int32))
    law = constant_length(100.0)
    groups = {"*": 0.0, "batch": 0.0}
    offset, pace = {"*": (1.0, 1.0), "batch": (2.0, 2.0)}, dict.fromkeys(groups, (0.0, 0.0))
    law = replace(law, group_level=groups, offset=offset, pace=pace)
    rows = length_rows(law, CLASSES, load)
    first, second = (with_drawn_lengths(load, rows, seed=1, draw=draw).output_tokens for draw in (1, 2))
    assert (first != second).mean() > 0.5
    for drawn in (first, second):
        for of_class in (0, 1):
            mine = load.class_index == of_class
            for level in (0.1, 0.5, 0.9):
                was, now = (np.quantile(tokens[mine], level) for tokens in (load.output_tokens, drawn))
                assert abs(now / was - 1) < 0.1


def test_a_guessed_length_is_drawn_and_lends_nothing() -> None:
    load, _ = random_traffic(1, 50)
    assert load.arrivals is not None
    known = np.arange(50) >= 25
    guessed = replace(
        load,
        scored=np.ones(50, np.bool_),
        arrivals=replace(load.arrivals, learned=known),
        output_tokens=np.where(known, 700, 9).astype(np.int32),
    )
    rows = length_rows(constant_length(100.0), CLASSES, guessed)
    drawn = with_drawn_lengths(guessed, replace(rows, cap=np.full(50, np.inf)), seed=1, draw=1)
    assert set(drawn.output_tokens.tolist()) == {700}
    short = with_drawn_lengths(guessed, replace(rows, cap=np.full(50, 64.0)), seed=1, draw=1)
    assert set(short.output_tokens.tolist()) == {64}


def test_where_no_length_is_known_nothing_is_drawn() -> None:
    load, _ = random_traffic(2, 20)
    assert load.arrivals is not None
    blind = replace(load, arrivals=replace(load.arrivals, learned=np.zeros(20, np.bool_)))
    rows = length_rows(constant_length(100.0), CLASSES, blind)
    assert with_drawn_lengths(blind, rows, seed=1, draw=1) is blind
