"""Laws that every replay of the plain reference keeps, checked after every event."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.stages import predict_ttft
from policies.twin.faults import NO_FAULTS
from policies.twin.outcomes import NOT_YET, Status
from policies.twin.reference import pool as reference
from policies.twin.reference.convert import requests_of
from policies.twin.reference.pool import Pool, replay_reference
from policies.twin.reference.request import TRANSFER_NOISE, Request, multiplier
from policies.twin.workload import Workload
from tests.policies.twin.scenario import Scenario
from tests.policies.twin.scenarios import NS, build

numbers = st.integers(min_value=1_000, max_value=1_000_000)
few = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def pool_of(scenario: Scenario) -> Pool:
    return Pool(
        scenario.cluster,
        scenario.laws,
        scenario.policy,
        requests_of(scenario.workload, scenario.policy, scenario.estimated_output, scenario.expected_output),
        scenario.seed,
        scenario.decision_laws or scenario.laws,
        scenario.noise,
    )


def on_p(pool: Pool, index: int) -> list[Request]:
    placed = [r for r in pool.requests if r.prefill_node == index]
    return [r for r in placed if r.status is None and r.prefill_finished_ns == NOT_YET]


def check_prefill(pool: Pool) -> None:
    for p in pool.prefill:
        assert 0 <= p.pinned <= p.pinned + len(p.unpinned) <= p.capacity
        assert all((count == 0) == (block in p.unpinned) for block, count in p.references.items())
        assert set(p.unpinned) <= set(p.references)
        holders = [r for r in pool.requests if r.prefill_node == p.index]
        assert p.anonymous_blocks == sum(r.anonymous_blocks for r in holders)
        assert sum(p.references.values()) == sum(len(r.references) for r in holders)
        assert sum(1 for r in p.running if 0 < r.tokens_done < r.prompt_tokens) <= 1
        assert len(p.running) <= pool.cluster.discipline.prefill_max_seqs
        left = sum(r.prompt_tokens - r.tokens_done for r in p.running) + (p.step_tokens or 0)
        assert p.backlog_tokens == left + sum(r.expected_new_tokens for r in p.queue)
        assert p.backlog_requests == len(on_p(pool, p.index))


def check_decode(pool: Pool) -> None:
    lag = pool.cluster.discipline.growth_lag
    for d in pool.decode:
        memory = d.memory
        there = [r for r in pool.requests if r.decode_node == d.index]
        assert 0 <= memory.used <= memory.used + len(memory.retained) <= memory.capacity
        assert memory.own == sum(r.blocks_on_d for r in there)
        assert memory.references == Counter(block for r in there for block in r.shared_on_d)
        assert not set(memory.references) & set(memory.retained)
        assert len(d.running) <= pool.cluster.discipline.decode_max_seqs
        if d.in_step:
            assert d.batch
            assert all(memory.held(r) * d.block_tokens >= r.context_tokens + 1 - lag for r in d.batch)
        for r in d.running:
            computed = r.context_tokens - r.rest_tokens - (lag if r.stalled else 0)
            assert memory.held(r) * d.block_tokens >= computed
        assert all(memory.held(r) * d.block_tokens >= r.prompt_tokens for r in d.reserved)
        assert all(memory.held(r) == 0 for r in d.queue)
        assert all(r.tokens_made < r.output_tokens for r in d.running)


@few
@given(numbers)
def test_blocks_tokens_and_time_are_conserved(number):
    scenario = build(number)
    pool = pool_of(scenario)
    before = 0
    while events := pool.due():
        event = min(events)
        assert event[0] >= before
        pool.step(event)
        before = event[0]
        check_prefill(pool)
        check_decode(pool)
    assert all(p.pinned == 0 for p in pool.prefill)
    assert all(d.memory.used == 0 for d in pool.decode)
    assert not any((pool.links.shaking, pool.links.draining, pool.links.drained))
    assert not any(pool.links.flows_on.values())


@few
@given(numbers)
def test_every_request_ends_and_its_stages_follow_each_other(number):
    scenario = build(number)
    pool = pool_of(scenario)
    while events := pool.due():
        pool.step(min(events))
    by_p = scenario.cluster.discipline.first_on_prefill
    for r in pool.requests:
        assert r.status is not None
        stages = [
            r.arrival_ns,
            r.prefill_started_ns,
            r.prefill_finished_ns,
            r.transfer_started_ns,
            r.transfer_drained_ns,
            r.transfer_finished_ns,
            r.activated_ns,
        ]
        reached = [at for at in stages if at != NOT_YET]
        assert stages == sorted(reached) + [NOT_YET] * (len(stages) - len(reached))
        if r.status == Status.COMPLETED:
            on_p = by_p and r.output_tokens == 1  # D sees nothing of it
            assert (len(reached) == len(stages)) != on_p
            assert r.first_token_ns == r.prefill_finished_ns if by_p else r.first_token_ns > r.activated_ns
            assert reached[-1] <= r.finished_ns
            assert r.first_token_ns <= r.finished_ns
            assert r.tokens_made == r.output_tokens
            assert r.cached_tokens < r.prompt_tokens
            assert r.cached_tokens % scenario.cluster.block_tokens == 0
        else:
            assert r.finished_ns == NOT_YET
            assert r.tokens_made < r.output_tokens
        if r.status in (Status.REJECTED, Status.TOO_LARGE):
            assert (r.prefill_node, r.decode_node) == (-1, -1)
        assert r.prefill_node >= 0 or len(reached) == 1
        assert (r.prefill_started_ns == NOT_YET) == (r.released_ns == NOT_YET)
    made = sum(r.tokens_made for r in pool.requests)
    made_on_p = sum(by_p and r.first_token_ns != NOT_YET for r in pool.requests)
    assert made == made_on_p + sum(d.generated_tokens for d in pool.decode)
    accepted = [r for r in pool.requests if r.prefill_node >= 0]
    assert pool.counters().hit_blocks * scenario.cluster.block_tokens == sum(r.cached_tokens for r in accepted)
    assert pool.counters().preemptions == sum(r.preemptions for r in accepted)


@few
@given(numbers)
def test_requests_in_the_pool_over_time_are_the_sum_of_their_stays(number):
    """Little's law, exact in ns: the integral of the number in the pool is the sum of sojourn times."""
    pool = pool_of(build(number))
    before, inside_ns, ends = 0, 0, {}
    while events := pool.due():
        event = min(events)
        inside = sum(1 for r in pool.requests if r.prefill_node >= 0 and r.status is None)
        inside_ns += inside * (event[0] - before)
        before = event[0]
        pool.step(event)
        ends |= {r.index: before for r in pool.requests if r.status is not None and r.index not in ends}
    placed = [r for r in pool.requests if r.prefill_node >= 0]
    assert inside_ns == sum(ends[r.index] - r.arrival_ns for r in placed)
    assert all(r.finished_ns in (NOT_YET, ends[r.index]) for r in placed)


@few
@given(numbers)
def test_links_move_all_bytes_within_their_capacity(number):
    scenario = build(number)
    pool = pool_of(scenario)
    moved: dict[int, float] = {}
    before, fastest = 0, 0.0
    law = scenario.laws.transfer
    alone = scenario.cluster.discipline.contention == "none"
    while events := pool.due():
        event = min(events)
        for index, flow in pool.links.draining.items():
            moved[index] = moved.get(index, 0.0) + flow.rate * (event[0] - before)
        before = event[0]
        pool.step(event)
        for resource, capacity in pool.links.capacity.items():
            fastest = max(fastest, capacity)
            flows = [f for f in pool.links.draining.values() if resource in f.resources]
            taken = (max if alone else sum)([f.rate for f in flows] or [0.0])
            assert taken <= capacity * (1 + 1e-12)
            assert pool.links.flows_on[resource] == len(flows)
    table = None if scenario.noise is None else scenario.noise.transfer
    for index, bytes_moved in moved.items():
        request = pool.requests[index]
        noise = multiplier(table, scenario.seed, TRANSFER_NOISE, index, 0)
        size = request.sent_tokens * scenario.cluster.kv_bytes_per_token * law.wire_frac * noise
        # The end is rounded to a ns.
        assert bytes_moved <= size * (1 + 1e-9) + fastest
        if request.transfer_drained_ns != NOT_YET:
            # The rest left while the prompt was computed.
            least = size if law.overlap_frac == 0 else law.last_frac * size
            assert bytes_moved >= least * (1 - 1e-9) - fastest


@few
@given(numbers)
def test_in_an_idle_pool_the_first_token_comes_when_predict_ttft_says(number):
    scenario = build(number)
    rows = np.arange(min(12, scenario.workload.requests))
    load = one_at_a_time(scenario.workload, len(rows))
    # What a prediction does not know of: late views of caches, pairs that are new, a D that is chosen again, faults.
    live = {"period_ns": 0, "cache_period_ns": 0, "cache_delay_ns": 0, "cache_loss_frac": 0.0}
    routers = replace(scenario.cluster.routers, **live)
    laws = replace(scenario.laws, transfer=replace(scenario.laws.transfer, handshake_s=0.0))
    policy = replace(scenario.policy, decode_moment="arrival")
    discipline = replace(scenario.cluster.discipline, release="transfer", first_token="decode")
    cluster = replace(scenario.cluster, routers=routers, discipline=discipline, faults=NO_FAULTS)
    views = []

    def decide(policy, estimators, view):
        decision = real_decide(policy, estimators, view)
        views.append((view, decision))
        return decision

    real_decide = reference.decide
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "decide", decide)
        result = replay_reference(
            cluster,
            laws,
            policy,
            load,
            seed=scenario.seed,
            estimated_output=None if scenario.estimated_output is None else scenario.estimated_output[rows],
            expected_output=None if scenario.expected_output is None else scenario.expected_output[rows],
        )
    decided = [i for i in rows if result.status[i] != Status.TOO_LARGE]
    for i, (view, decision) in zip(decided, views, strict=True):
        if decision.prefill is None:
            continue
        predicted_s = predict_ttft(policy, laws, view, decision.prefill, decision.decode)
        realised_s = (result.first_token_ns[i] - load.arrival_ns[i]) / 1e9
        step_s = laws.decode.decode_s(view.decode[decision.decode].name, 1, load.prompt_tokens[i])
        assert abs(realised_s - predicted_s) <= step_s
        if not math.isnan(result.predicted_ttft_s[i]):
            assert result.predicted_ttft_s[i] == pytest.approx(predicted_s, abs=1e-9)


def one_at_a_time(load: Workload, requests: int) -> Workload:
    """The first requests, an hour between two, placed by the policy."""
    nobody = np.full(requests, -1, np.int32)
    return Workload(
        arrival_ns=np.arange(requests, dtype=np.int64) * 3_600 * NS,
        prompt_tokens=load.prompt_tokens[:requests],
        output_tokens=load.output_tokens[:requests],
        class_index=load.class_index[:requests],
        block_offset=load.block_offset[: requests + 1],
        block_ids=load.block_ids[: load.block_offset[requests]],
        forced_prefill=nobody,
        forced_decode=nobody,
        scored=load.scored[:requests],
    )
