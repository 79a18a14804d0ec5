"""Transforms of workloads: what they keep, whatever the workload, and what they do to the numbers."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import TwinError
from policies.twin import transforms
from policies.twin.engine.lower import check_workload
from policies.twin.workload import Workload
from tests.policies import world
from tests.policies.twin.scenarios import make_blocks

BLOCK = 16
MS = 1_000_000


def make(seed: int) -> Workload:
    """Up to 40 requests, several at one instant, with ids, sessions and cancellations."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 41))
    prompt = rng.integers(1, 300, n).astype(np.int32)
    block_ids, block_offset = make_blocks(rng, prompt // BLOCK)
    arrival = np.cumsum(np.where(rng.random(n) < 0.3, 0, rng.integers(0, 30 * MS, n)))
    parent = np.where(rng.random(n) < 0.4, np.arange(n) - rng.integers(1, 5, n), -1)
    parent = np.maximum(parent, -1).astype(np.int32)
    closed = rng.random() < 0.5
    cancelled = np.where(rng.random(n) < 0.3, arrival + rng.integers(-MS, 50 * MS, n), -1)
    return Workload(
        arrival_ns=arrival.astype(np.int64),
        prompt_tokens=prompt,
        output_tokens=rng.integers(0, 200, n).astype(np.int32),
        class_index=rng.integers(0, 3, n).astype(np.int32),
        block_offset=block_offset,
        block_ids=block_ids,
        forced_prefill=np.full(n, -1, np.int32),
        forced_decode=np.full(n, -1, np.int32),
        scored=rng.random(n) < 0.8,
        request_ids=tuple(f"r{i}" for i in range(n)),
        cancel_ns=np.maximum(cancelled, -1).astype(np.int64) if rng.random() < 0.5 else None,
        parent=parent if closed else None,
        think_ns=np.where(parent < 0, -1, rng.integers(1, MS, n)) if closed else None,
    )


TRANSFORMS = {
    "scale_load": lambda w, s: transforms.scale_load(w, [0.5, 1.0, 3.0][s % 3]),
    "burst": lambda w, s: transforms.burst(w, start_ns=20 * MS, stop_ns=90 * MS, factor=[0.5, 4.0][s % 2]),
    "thin": lambda w, s: transforms.thin(w, 0.5, seed=s),
    "scale_lengths": lambda w, s: transforms.scale_lengths(w, block_tokens=BLOCK, prompt=[0.3, 2.0][s % 2], output=0.7),
    "mix_classes": lambda w, s: transforms.mix_classes(w, (1.0, 0.5, 0.0), seed=s),
    "shift": lambda w, _: transforms.shift(w, 5 * MS),
    "copies": lambda w, _: transforms.copies(w, 3, every_ns=7 * MS),
    "jitter": lambda w, s: transforms.jitter(w, 10 * MS, seed=s),
    "draw_cancellations": lambda w, s: transforms.draw_cancellations(w, 0.5, mean_ns=1e7, seed=s),
}
KEEPS_ALL = {"scale_load", "burst", "scale_lengths", "shift", "jitter", "draw_cancellations"}
seeds = st.integers(0, 10_000)


def blocks(load: Workload, row: int) -> list[int]:
    return load.block_ids[load.block_offset[row] : load.block_offset[row + 1]].tolist()


@pytest.mark.parametrize("name", TRANSFORMS)
@settings(max_examples=60, deadline=None)
@given(seed=seeds)
def test_what_comes_out_is_a_workload_of_the_same_requests(name, seed):
    load = make(seed)
    before = {f.name: np.array(getattr(load, f.name), copy=True) for f in fields(load) if f.name != "arrivals"}
    made = TRANSFORMS[name](load, seed)
    check_workload(made)
    for field, value in before.items():
        np.testing.assert_array_equal(getattr(load, field), value, err_msg="the argument was changed")
    assert len(made.request_ids) == made.requests == len(made.block_offset) - 1
    assert made.block_offset[-1] == len(made.block_ids)
    assert (np.diff(made.block_offset) <= made.prompt_tokens // BLOCK).all()
    rows = [load.request_ids.index(name) for name in made.request_ids]
    if name in KEEPS_ALL:
        assert sorted(rows) == list(range(load.requests))
    elif name == "copies":
        assert sorted(rows) == sorted(list(range(load.requests)) * 3)
    else:
        assert rows == sorted(set(rows))
    np.testing.assert_array_equal(made.class_index, load.class_index[rows])
    np.testing.assert_array_equal(made.scored, load.scored[rows])
    if made.parent is not None and name != "copies":
        for row, parent in enumerate(made.parent):
            if parent >= 0:
                assert rows[parent] == load.parent[rows[row]]
    again = TRANSFORMS[name](load, seed)
    for f in fields(made):
        np.testing.assert_array_equal(getattr(again, f.name), getattr(made, f.name))


@pytest.mark.parametrize("name", sorted(set(TRANSFORMS) - {"scale_lengths"}))
@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_prompts_outputs_and_prefixes_are_kept(name, seed):
    load = make(seed)
    made = TRANSFORMS[name](load, seed)
    rows = [load.request_ids.index(name) for name in made.request_ids]
    np.testing.assert_array_equal(made.prompt_tokens, load.prompt_tokens[rows])
    np.testing.assert_array_equal(made.output_tokens, load.output_tokens[rows])
    of_block: dict[tuple[int, int], int] = {}
    for row, old in enumerate(rows):
        assert len(blocks(made, row)) == len(blocks(load, old))
    if name != "copies":
        for row, old in enumerate(rows):
            for mine, theirs in zip(blocks(made, row), blocks(load, old), strict=True):
                assert of_block.setdefault((0, theirs), mine) == mine


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_copies_share_no_prefix_and_each_shares_what_the_original_did(seed):
    load = make(seed)
    made = transforms.copies(load, 2, every_ns=0)
    seen: dict[str, list[list[int]]] = {}
    for row, name in enumerate(made.request_ids):
        seen.setdefault(name, []).append(blocks(made, row))
    firsts = {block for pair in seen.values() for block in pair[0]}
    seconds = {block for pair in seen.values() for block in pair[1]}
    assert not firsts & seconds
    assert len(firsts) == len(seconds) == len(set(load.block_ids.tolist()))


def test_load_divides_arrivals_and_think_times_and_keeps_patience():
    load = replace(
        world.workload(100),
        cancel_ns=world.workload(100).arrival_ns + 5,
        parent=np.arange(-1, 99, dtype=np.int32),
        think_ns=np.array([-1] + [1000] * 99),
    )
    fast = transforms.scale_load(load, 1.25)
    assert np.all(np.abs(fast.arrival_ns * 1.25 - load.arrival_ns) <= 1.25)
    assert fast.prompt_tokens is load.prompt_tokens
    np.testing.assert_array_equal(fast.cancel_ns - fast.arrival_ns, 5)
    assert set(fast.think_ns[1:]) == {800}
    assert transforms.scale_load(load, 1.0) is load


def times(load: Workload, ms: list[int]) -> Workload:
    return replace(load, arrival_ns=np.array(ms, np.int64) * MS)


def test_a_burst_is_dense_and_what_follows_comes_earlier():
    made = transforms.burst(
        times(world.workload(5), [0, 10, 20, 30, 50]), start_ns=10 * MS, stop_ns=30 * MS, factor=2.0
    )
    assert (made.arrival_ns / MS).tolist() == [0, 10, 15, 20, 40]


def test_thinning_takes_whole_sessions_and_the_asked_share():
    load = world.workload(4000)
    parent = np.where(np.arange(4000) % 4 == 0, -1, np.arange(4000) - 1).astype(np.int32)
    load = replace(load, parent=parent, think_ns=np.where(parent < 0, -1, 1))
    kept = transforms.thin(load, 0.3, seed=3)
    assert kept.requests == pytest.approx(1200, rel=0.1)
    assert kept.requests == 4 * int((kept.parent < 0).sum())


def test_jitter_stays_within_the_resolution_and_is_spread():
    load = times(world.workload(1000), [7 * (k // 10) for k in range(1000)])
    made = transforms.jitter(load, 7 * MS, seed=1)
    np.testing.assert_array_equal(made.arrival_ns // (7 * MS), load.arrival_ns // (7 * MS))
    assert np.mean(made.arrival_ns % (7 * MS)) == pytest.approx(3.5 * MS, rel=0.1)


def test_cancellations_have_their_rate_and_mean():
    load = world.workload(4000)
    made = transforms.draw_cancellations(load, 0.25, mean_ns=1e9, seed=5)
    cancelled = made.cancel_ns >= 0
    assert np.mean(cancelled) == pytest.approx(0.25, rel=0.1)
    assert np.mean((made.cancel_ns - load.arrival_ns)[cancelled]) == pytest.approx(1e9, rel=0.1)


def test_shorter_prompts_keep_their_leading_blocks():
    load = make(3)
    made = transforms.scale_lengths(load, block_tokens=BLOCK, prompt=0.5)
    for row in range(load.requests):
        assert blocks(made, row) == blocks(load, row)[: made.prompt_tokens[row] // BLOCK]


@pytest.mark.parametrize(
    "call",
    [
        lambda w: transforms.scale_load(w, 0.0),
        lambda w: transforms.burst(w, start_ns=2, stop_ns=1, factor=1.0),
        lambda w: transforms.burst(w, start_ns=0, stop_ns=1, factor=-1.0),
        lambda w: transforms.thin(w, 1.5, seed=0),
        lambda w: transforms.shift(w, -(10**15)),
        lambda w: transforms.copies(w, 0),
        lambda _: transforms.merge(),
        lambda w: transforms.jitter(w, 0, seed=0),
        lambda w: transforms.mix_classes(w, (), seed=0),
        lambda w: transforms.draw_cancellations(w, 0.5, mean_ns=0.0, seed=0),
    ],
)
def test_what_makes_no_sense_is_refused(call):
    with pytest.raises(TwinError):
        call(world.workload(5))
