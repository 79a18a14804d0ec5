"""Slices by hand: the planted loss is found with its count, small slices are left out."""

from __future__ import annotations

import numpy as np
import pytest

from policies.evidence.slices import LEAST, SHOWN, SliceSums
from policies.search.detail import Detail
from tests.policies.evidence.details import detail

N = 600


def made(met: np.ndarray, decode: np.ndarray | None = None, **more: np.ndarray) -> Detail:
    """600 requests, every third of class batch, sizes in turns of 10 small and 10 large ones."""
    at = np.arange(N)
    columns = {
        "class_index": (at % 3 == 0).astype(np.int32),
        "prompt_tokens": np.where(at // 10 % 2 == 0, 100, 5000).astype(np.int32),
        **more,
    }
    return detail([0] * N, [0] * N if decode is None else decode.tolist(), met=met, **columns)


def test_the_planted_loss_and_gain_stand_first() -> None:
    at = np.arange(N)
    batch, large = at % 3 == 0, at // 10 % 2 == 1
    winner = ~(batch & large & (at >= 400)) | (at % 2 == 0)
    incumbent = ~(~batch & ~large & (at < 200))
    sums = SliceSums()
    for _ in range(2):  # two days alike: no slice of one day has 50
        sums.add(made(winner), made(incumbent))
    found = sums.extremes()
    assert found.looked_at == 13
    loss = found.losses[0]
    assert loss.where == "batch, prompt 2,048 – 8,191 tokens, last third"
    assert loss.requests == 2 * int((batch & large & (at >= 400)).sum()) >= LEAST
    assert (loss.winner_goodput_frac, loss.incumbent_goodput_frac) == (pytest.approx(0.5, abs=0.1), 1.0)
    assert loss.difference == loss.winner_goodput_frac - 1.0
    gain = found.gains[0]
    assert (gain.where, gain.difference) == ("chat, prompt < 512 tokens, first third", 1.0)
    assert [s.difference for s in found.gains] == sorted((s.difference for s in found.gains), reverse=True)
    assert not {s.where for s in found.losses} & {s.where for s in found.gains}


def test_racks_are_those_of_the_incumbents_choice_and_weights_count() -> None:
    at = np.arange(N)
    rack_b = at % 2 == 1
    weight = np.where(at % 4 == 1, 3.0, 1.0)
    winner = made(at % 4 != 1, 1 - rack_b.astype(int), weight=weight)
    incumbent = made(np.ones(N, np.bool_), rack_b.astype(int), weight=weight)
    sums = SliceSums()
    sums.add(winner, incumbent)
    racks = {s.where: s for s in sums.extremes().losses if "rack" in s.where}
    assert list(racks) == ["D in rack b (the incumbent's choice)"]
    assert racks["D in rack b (the incumbent's choice)"].difference == -0.75
    assert racks["D in rack b (the incumbent's choice)"].requests == N // 2


def test_at_most_five_of_each_and_nothing_where_nothing_differs() -> None:
    rng = np.random.default_rng(3)
    size = rng.choice([100, 1000, 5000, 9000, 50_000], N * 1).astype(np.int32)
    sums = SliceSums()
    for seed in range(6):
        draw = np.random.default_rng(seed)
        sums.add(*(made(draw.random(N) < 0.5, prompt_tokens=size) for _ in range(2)))
    found = sums.extremes()
    assert len(found.losses) == len(found.gains) == SHOWN
    assert all(s.requests >= LEAST for s in (*found.losses, *found.gains))
    same = SliceSums()
    same.add(made(np.ones(N, np.bool_)), made(np.ones(N, np.bool_)))
    assert (same.extremes().losses, same.extremes().gains) == ((), ())


def test_no_slice_under_fifty() -> None:
    few = detail([0] * 49, [0] * 49, met=np.zeros(49, np.bool_))
    sums = SliceSums()
    sums.add(few, detail([0] * 49, [0] * 49))
    assert sums.extremes().looked_at == 0
    sums.add(few, detail([0] * 49, [0] * 49))
    assert sums.extremes().looked_at == 1  # the rack's
    empty = detail([], [])
    sums.add(empty, empty)
    assert sums.extremes().losses[0].requests == 98
