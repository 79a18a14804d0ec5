"""What a router knows of its own requests, on pools that can be followed by hand; engine and reference alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policies.families import dynamo_cost
from policies.families.params import to_row
from policies.twin.reference.pool import replay_reference
from policies.twin.replay import replay
from tests.policies.twin.tiny import POLICY, cluster, laws, workload

UNDECIDED = (-1, -1)


@pytest.fixture(params=[replay, replay_reference], ids=["engine", "reference"])
def placed(request):
    def run(family: str, *rows, blocks=None, nodes=2, moment="arrival", params=()):
        pool = cluster(prefill_blocks=(64,) * nodes, decode_blocks=(64,) * nodes)
        load = workload(*rows, pairs=[UNDECIDED] * len(rows), blocks=blocks)
        policy = replace(POLICY, family=family, decode_moment=moment, params=params)
        found = request.param(pool, laws(), policy, load, seed=3)
        return list(found.prefill_node), list(found.decode_node)

    return run


def test_prompts_at_one_instant_are_spread(placed):
    prefill, decode = placed("least_request", *[(0, 64, 50)] * 4)
    assert sorted(prefill) == [0, 0, 1, 1]
    assert sorted(decode) == [0, 0, 1, 1]


def test_a_request_counts_until_its_end(placed):
    # A step is 5 ms: the first answer ends near 1.5 s, the second near 2.6 s.
    _, decode = placed("least_request", (0, 64, 280), (1000, 64, 280), (2000, 64, 10))
    assert decode[1] != decode[0]
    assert decode[2] == decode[0]


SAME_PROMPT = ((0, 64, 280), (200, 32, 280), (400, 64, 280))
SAME_BLOCKS = [[0, 1, 2, 3], [4, 5], [0, 1, 2, 3]]
REUSE = to_row(dynamo_cost.Params(assume_kv_reuse=True))


@pytest.mark.parametrize("moment", ["arrival", "handoff"])
def test_dynamo_counts_the_blocks_of_every_request(placed, moment):
    # The first holds 4 blocks, the second 2: for the third 4 + 4 new there, 2 + 4 new here, whatever it shares.
    _, decode = placed("dynamo_cost", *SAME_PROMPT, blocks=SAME_BLOCKS, moment=moment)
    assert decode[1] != decode[0]
    assert decode[2] == decode[1]


@pytest.mark.parametrize("moment", ["arrival", "handoff"])
def test_dynamo_with_kv_reuse_counts_blocks_once(placed, moment):
    # For the third 4 + 0 new there, 2 + 4 new here.
    _, decode = placed("dynamo_cost", *SAME_PROMPT, blocks=SAME_BLOCKS, moment=moment, params=REUSE)
    assert decode[1] != decode[0]
    assert decode[2] == decode[0]


@pytest.mark.parametrize("params", [(), REUSE], ids=["apart", "reuse"])
def test_dynamo_counts_full_blocks_alone(placed, params):
    # Two prompts of 1 block and 15 tokens against one of 3 blocks: 2 < 3, with one more a request it were 4 = 4.
    rows = ((0, 31, 500), (100, 48, 500), (200, 31, 500), (400, 31, 500))
    _, decode = placed("dynamo_cost", *rows, blocks=[[0], [1, 2, 3], [4], [5]], params=params)
    assert decode[1] != decode[0]
    assert decode[2] == decode[3] == decode[0]


def test_dynamo_forgets_blocks_of_what_has_ended(placed):
    # When the third comes, only the second (2 blocks) runs: 0 + 4 new on the first D, 2 + 4 on the other.
    _, decode = placed(
        "dynamo_cost",
        (0, 64, 10),
        (20, 32, 600),
        (1500, 64, 10),
        blocks=[[0, 1, 2, 3], [4, 5], [0, 1, 2, 3]],
    )
    assert decode[1] != decode[0]
    assert decode[2] == decode[0]


def test_dynamo_keeps_a_prompt_where_its_prefix_is(placed):
    # 64 cached tokens are 4 blocks less; the other P is as idle.
    prefill, _ = placed("dynamo_cost", (0, 96, 10), (1000, 96, 10), blocks=[[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]])
    assert prefill[0] == prefill[1]
