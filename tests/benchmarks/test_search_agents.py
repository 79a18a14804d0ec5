"""Agents in closed loop: turns wait and think as logged at every load, and prefixes end where conversations part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search import agents
from benchmarks.search.pools import POOLS
from policies.search.cases import Case
from policies.search.replay import save_workloads
from policies.twin.transforms import thin

TRACES = pytest.mark.skipif(not agents.TRACES.exists(), reason=f"{agents.TRACES} is not here")
POOL = POOLS["s"]


def turn(at_s: float, tokens: int, *, first: int = 0, api_s: float | None = 2.0, out: int = 50) -> dict[str, object]:
    hashes = [first + k for k in range(-(-tokens // 64))]
    return {"t": at_s, "in": tokens, "out": out, "hash_ids": hashes, "api_time": api_s}


TALK = agents.conversation([turn(5.0, 1_000), turn(10.0, 2_000, api_s=None), turn(40.0, 3_000)], typical_s=8.0)


def test_a_turn_thinks_from_the_answers_end_which_is_guessed_where_unknown():
    assert TALK.at_ns.tolist() == [0, 5_000_000_000, 35_000_000_000]
    assert TALK.think_ns.tolist() == [-1, 3_000_000_000, 22_000_000_000]
    assert TALK.guessed == 1
    hasty = agents.conversation([turn(0.0, 600, api_s=9.0), turn(5.0, 600)], typical_s=8.0)
    assert hasty.think_ns.tolist() == [-1, agents.LEAST_THINK_NS]


def test_blocks_are_whole_groups_of_hashes_and_differ_behind_what_differs():
    assert [b.tolist() for b in TALK.blocks] == [[0], [0, 1, 2], [0, 1, 2, 3, 4]]
    odd = turn(9.0, 2_000)
    odd["hash_ids"] = [7_777, *range(1, 32)]  # only the first hash differs: nothing of the prefix is the same
    assert [b.tolist() for b in agents.conversation([turn(0.0, 2_000), odd], 8.0).blocks] == [[0, 1, 2], [3, 4, 5]]


def test_the_window_opens_on_conversations_under_way_with_prefixes_of_their_own():
    starts = np.array([-6_000_000_000, 1_000_000_000])
    seen = agents._window([TALK], np.array([0, 0]), starts, POOL)
    assert (seen.arrival_ns / 1e9).tolist() == [1.0, 6.0, 29.0, 36.0]
    assert seen.parent is not None
    assert seen.parent.tolist() == [-1, 0, -1, 1]
    assert seen.think_ns is not None
    assert seen.think_ns.tolist() == [-1, 3_000_000_000, -1, 22_000_000_000]
    mine, others = seen.block_ids[seen.block_offset[2] : seen.block_offset[3]], seen.block_ids[: seen.block_offset[2]]
    assert len(mine) == 5
    assert not set(mine.tolist()) & set(others.tolist())


def test_more_load_is_more_conversations_whose_turns_think_as_long(tmp_path: Path):
    talks = agents.Agents([replace(TALK, think_ns=TALK.think_ns + k) for k in range(4)])
    day = talks.day(POOL, 0.2, 1, train=True)
    save_workloads(tmp_path, {"day": day})
    replays = talks.factory(POOL, tmp_path, 1).build()
    scores = {load: replays(POOL.default, Case("day", load)) for load in (0.5, 1.0, agents.MOST)}
    asked = [score.outcome.requests for score in scores.values()]
    assert asked == [int(thin(day, load / agents.MOST, seed=1).scored.sum()) for load in scores]
    assert asked[0] < asked[1] < asked[2] == int(day.scored.sum())
    assert [score.case.load for score in scores.values()] == list(scores)
    half = thin(day, 0.5, seed=1)
    assert half.think_ns is not None
    assert set(half.think_ns.tolist()) <= set(np.unique(day.think_ns).tolist())


def test_the_halves_share_no_conversation():
    talks = agents.Agents([replace(TALK, output_tokens=np.full(3, k, np.int32)) for k in range(1, 21)])
    train, test = (talks.day(POOL, 1.0, 1, train=train).output_tokens for train in (True, False))
    assert set(train.tolist()) == set(range(1, 12))
    assert set(test.tolist()) == set(range(12, 21))


@TRACES
def test_the_real_conversations_are_closed_loops_that_fit_the_pool():
    talks = agents.read_conversations(most=6)
    assert (len(talks), sum(len(t.at_ns) for t in talks), sum(t.guessed for t in talks)) == (6, 258, 41)
    assert min(int(t.think_ns[1:].min()) for t in talks if len(t.think_ns) > 1) >= agents.LEAST_THINK_NS
    assert max(int(t.prompt_tokens.max()) for t in talks) < agents.BLOCK * POOL.d_blocks
