"""What a replay yields does not depend on the memory that it is given: an arena of before, rows in chunks."""

from __future__ import annotations

import numpy as np
import pytest

from policies.twin.engine import rows
from policies.twin.engine.arena import HUGE, Arena
from policies.twin.outcomes import Replay
from policies.twin.replay import replay
from tests.policies.twin.scenario import Scenario
from tests.policies.twin.scenarios import build
from tests.policies.twin.test_engine_equals_reference import assert_same


def run(s: Scenario, arena: Arena | None = None) -> Replay:
    return replay(
        s.cluster, s.laws, s.policy, s.workload, seed=s.seed, estimated_output=s.estimated_output,
        expected_output=s.expected_output, decision_laws=s.decision_laws, noise=s.noise, arena=arena,
    )  # fmt: skip


@pytest.mark.parametrize("first", range(0, 24, 4))
def test_replays_on_one_arena_equal_fresh_ones(first: int) -> None:
    arena = Arena()
    for seed in range(first, first + 4):
        scenario = build(seed)
        fresh = run(scenario)
        kept = run(scenario, arena)
        arena.fill(0xAA)
        assert_same(fresh, kept)
        assert_same(fresh, run(scenario, arena))


@pytest.mark.parametrize("seed", range(12))
def test_rows_in_chunks_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = build(seed)
    whole = run(scenario)
    monkeypatch.setattr(rows, "CHUNK", max(scenario.workload.requests // 4, 1))
    assert_same(whole, run(scenario))


def test_memory_given_back_is_zero_and_the_rest_stays() -> None:
    arena, page = Arena(), HUGE // 8
    held = arena.empty("a", (4 * page,), np.int64)
    held[:] = 7
    arena.give_back("a", 0, HUGE - 8)
    assert (held == 7).all()
    arena.give_back("a", HUGE - 8, 3 * HUGE + 8)
    assert (held[: 3 * page] == 0).all()
    assert (held[3 * page :] == 7).all()


def test_pages_of_zeros_are_given_back_and_read_as_zeros() -> None:
    arena = Arena()
    held = arena.zeros("a", (64, 512), np.int64)
    held[:] = 7
    held[3:5] = held[9] = 0
    arena.give_back_zeros("a", 32 * 4096)
    held[4, 5] = 1
    arena.give_back_zeros("a", 64 * 4096)
    wanted = np.full((64, 512), 7)
    wanted[3:5] = wanted[9] = 0
    wanted[4, 5] = 1
    np.testing.assert_array_equal(held, wanted)


def test_an_arena_grows_and_keeps() -> None:
    arena = Arena()
    small = arena.zeros("a", (3, 2), np.int32)
    small[:] = 5
    assert np.shares_memory(arena.empty("a", (2, 2), np.int32), small)
    assert (arena.zeros("a", (3, 2), np.int32) == 0).all()
    large = arena.zeros("a", (300, 2), np.int32)
    assert (large == 0).all()
    assert not np.shares_memory(small, large)
    assert arena.zeros("none", (0, 4), np.int64).shape == (0, 4)
