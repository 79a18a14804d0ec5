"""Rules of the twin that stand in the settings reach the cluster, the incumbent and the workloads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipelines.cluster_file import parse_cluster
from pipelines.night.workloads import priorities
from pipelines.settings_cluster import to_cluster
from policies.policy import default_policy
from policies.search.families import variants
from policies.twin.cluster import Discipline, RouterSetup
from tests.pipelines.test_settings import SMALL, parse, with_key

RULES = """
order = "priority"
preemption = "swap"
swap_gbps = 400
first_token = "prefill"
transfer_overlap = true
admission_reserve_blocks = 3
admission = "staged"
stage_tokens = 64
readmission = "first_preempted"
"""
ROUTER = """
count = 2
period_ms = 100
loss_frac = 0.25
correct_age = true
cache_period_ms = 20
cache_delay_ms = 2.5
cache_loss_frac = 0.125
"""
CLASSES = """
[pools.p.classes]
fast = {ttft_target_ms = 500}
slow = {ttft_target_ms = 9000, priority = 5}
"""
BLOCKS = {"d0": 9, "d1": 9}


def test_rules_of_the_engine_reach_the_cluster() -> None:
    rules = to_cluster(parse(with_key("engine", RULES)).pool("p"), blocks=BLOCKS).discipline
    assert rules == Discipline(
        queue_order="priority",
        preemption="swap",
        swap_gbps=400.0,
        first_token="prefill",
        admission_reserve_blocks=3,
        admission="staged",
        stage_tokens=64,
        readmission="first_preempted",
    )


def test_what_routers_see_reaches_the_cluster() -> None:
    routers = to_cluster(parse(with_key("router", ROUTER)).pool("p"), blocks=BLOCKS).routers
    assert routers == RouterSetup(
        count=2,
        period_ns=100_000_000,
        loss_frac=0.25,
        correct_age=True,
        cache_period_ns=20_000_000,
        cache_delay_ns=2_500_000,
        cache_loss_frac=0.125,
    )


def test_a_node_serves_the_classes_that_it_names() -> None:
    text = SMALL.replace('role = "prefill"', 'role = "prefill"\nclasses = ["fast"]') + CLASSES
    cluster = to_cluster(parse(text).pool("p"), blocks=BLOCKS)
    assert [n.classes for n in (*cluster.prefill, *cluster.decode)] == [("fast",), (), ()]


@pytest.mark.parametrize(
    ("engine", "incumbent", "moment"),
    [
        ("", "", "arrival"),
        ('decode_chosen = "handoff"', "", "handoff"),
        ('decode_chosen = "handoff"', ', decode_moment = "arrival"', "arrival"),
        ("", ', decode_moment = "recheck"', "recheck"),
        ("", ', "dynamo_cost"', "handoff"),
        ('decode_chosen = "arrival"', ', "dynamo_cost"', "arrival"),
    ],
)
def test_when_d_is_chosen_is_the_routers_rule(engine: str, incumbent: str, moment: str) -> None:
    text = with_key("engine", engine) + '[pools.p.router]\nfamilies = ["gated_utilisation", "dynamo_cost"]\n'
    if incumbent.endswith('"dynamo_cost"'):
        text = text.replace('{family = "gated_utilisation"}', '{family = "dynamo_cost"}')
    text = text.replace('"gated_utilisation"}', f'"gated_utilisation"{incumbent}}}')
    assert parse(text).pool("p").incumbent.decode_moment == moment


def test_priority_of_a_class_reaches_the_requests() -> None:
    pool = parse(SMALL + CLASSES).pool("p")
    index = np.array([1, 0, 2, 1], np.int32)
    assert [c.name for c in pool.classes] == ["fast", "slow", "default"]
    found = priorities(pool, index)
    assert found is not None
    assert found.tolist() == [5, 0, 0, 5]
    turned = replace(pool, classes=(pool.classes[1], pool.classes[0], pool.classes[2]))
    again = priorities(turned, index)
    assert again is not None
    assert again.tolist() == [0, 5, 0, 0]


def test_one_priority_for_all_is_none() -> None:
    assert priorities(parse(SMALL).pool("p"), np.zeros(3, np.int32)) is None


def test_a_cluster_file_has_what_overlap_and_handshake_take() -> None:
    text = SMALL.replace("[pools.p]", "").replace('model = "m"\n', "").replace("pools.p.", "")
    text = text.replace('incumbent = {family = "gated_utilisation"}\n', "").replace(
        "port_gbps", "blocks = 9\nport_gbps"
    )
    text = text.replace("blocks = 100\nblocks = 9", "blocks = 100")
    laws = """
[laws]
output_tokens = 10
[laws.prefill]
coef = [0.1, 0, 0, 0, 0]
[laws.decode]
coef = [0.1, 0, 0, 0]
[laws.transfer]
overlap_frac = 0.5
last_frac = 0.1
handshake_s = 0.2
"""
    found = parse_cluster(text + laws, place="cluster.toml").laws
    assert found is not None
    assert (found.transfer.overlap_frac, found.transfer.last_frac, found.transfer.handshake_s) == (0.5, 0.1, 0.2)


@pytest.mark.parametrize(
    ("engine", "moments"),
    [("", ["arrival", "handoff", "arrival"]), ('decode_chosen = "handoff"', ["handoff", "handoff", "handoff"])],
)
def test_a_candidate_chooses_d_when_the_pools_router_does(engine: str, moments: list[str]) -> None:
    pool = parse(with_key("engine", engine)).pool("p")
    assert [pool.moment_of(f) for f in ("routecal", "dynamo_cost", "lmetric")] == moments
    base = replace(default_policy(pool.classes), decode_moment=pool.moment_of("routecal"))
    found = [variants(f, base, 1)[f].decode_moment for f in ("dynamo_cost", "lmetric")]
    assert found == moments[1:]
