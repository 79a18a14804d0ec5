"""What routers see and when they choose, in numbers that can be computed by hand."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from models.portable.steps import StepLaw, one_type
from policies.families.registry import decide
from policies.policy import ClassPolicy, Policy
from policies.risk import risk_table
from policies.twin.cluster import Cluster, RouterSetup
from policies.twin.outcomes import Replay, Status
from policies.twin.reference.aging import Backlog, brought_up
from policies.twin.reference.decode import DecodeState
from policies.twin.reference.pool import replay_reference
from policies.twin.reference.router import Router
from policies.twin.regret import regret_of
from policies.twin.replay import Recording, replay_recorded
from policies.twin.workload import Workload
from tests.policies.twin import tiny
from tests.policies.twin.tiny import MS
from tests.policies.views import Draws, decode_view, estimators, router_view

POOL = tiny.cluster(prefill_blocks=(64, 64), decode_blocks=(64, 64))
ANY = [(-1, -1)]


def run(policy: Policy, load: Workload, pool: Cluster = POOL, seed: int = 0) -> Replay:
    known = np.full(load.requests, 16, np.int32)
    return replay_reference(pool, tiny.laws(), policy, load, seed=seed, estimated_output=known, expected_output=known)


def pairs(result: Replay) -> list[tuple[int, int]]:
    return list(zip(result.prefill_node.tolist(), result.decode_node.tolist(), strict=True))


def test_round_robin_takes_ds_in_the_order_of_completion_at_hand_off():
    load = tiny.workload((0, 64, 1), (0, 16, 1), (0, 16, 1), pairs=ANY * 3)
    # The short prompt on P 1 is whole at 11.6 ms, the long one on P 0 with the next behind it at 16.4 ms and later.
    assert pairs(run(tiny.POLICY, load)) == [(0, 0), (1, 1), (0, 1)]
    assert pairs(run(replace(tiny.POLICY, decode_moment="handoff"), load)) == [(0, 1), (1, 0), (0, 0)]


@pytest.mark.parametrize("moment", ["handoff", "recheck"])
def test_a_d_that_filled_up_meanwhile_is_left_alone(moment):
    policy = replace(tiny.POLICY, family="lowest_utilisation")
    # 192 tokens take P until 62 ms; by then a forced request runs on the D that the arrival would have taken.
    alone = run(policy, tiny.workload((0, 192, 1), pairs=ANY))
    taken = int(alone.decode_node[0])
    load = tiny.workload((0, 192, 1), (1, 16, 90), pairs=[(-1, -1), (1 - int(alone.prefill_node[0]), taken)])
    assert run(policy, load).decode_node[0] == taken
    assert run(replace(policy, decode_moment=moment), load).decode_node[0] == 1 - taken


def test_a_booking_on_d_begins_with_the_choice_of_d():
    pool = replace(POOL, routers=RouterSetup(period_ns=1_000 * MS))
    load = tiny.workload((1_001, 192, 1), (1_010, 16, 1), pairs=ANY * 2)
    assert run(replace(tiny.POLICY, decode_moment="handoff", lease_s=0.001), load, pool).counters.expired == 0
    assert run(replace(tiny.POLICY, decode_moment="arrival", lease_s=0.001), load, pool).counters.expired == 1


def test_a_node_serves_its_classes_only():
    nodes = tuple(replace(n, classes=("other",)) if n.name == "d-0" else n for n in POOL.decode)
    result = run(
        tiny.POLICY, tiny.workload(*[(k, 16, 1) for k in range(6)], pairs=ANY * 6), replace(POOL, decode=nodes)
    )
    assert set(result.decode_node.tolist()) == {1}
    nobody = replace(POOL, decode=tuple(replace(n, classes=("other",)) for n in POOL.decode))
    assert run(tiny.POLICY, tiny.workload((0, 16, 1), pairs=ANY), nobody).status[0] == Status.REJECTED


def test_a_backlog_drains_between_bookings():
    backlog = Backlog(1_000.0, 4.0, at_ns=0, pace=1_000.0)
    backlog.add([(500 * MS, 100)])  # 500 tokens of 2 prompts are left then
    assert (backlog.tokens, backlog.requests) == (600.0, 3.0)
    backlog.add([(2_000 * MS, 50)])  # nothing is left of them
    assert (backlog.tokens, backlog.requests) == (50.0, 1.0)


def test_a_sample_of_d_is_brought_up_by_its_rates():
    view = replace(
        decode_view(Draws(1), 0, 1, 16, 16, 0.0),
        usable_blocks=1_000.0,
        active_blocks=400.0,
        running_requests=20.0,
        running_tokens=6_000.0,
        running_by_class=(15.0, 5.0),
        growth_blocks_per_s=10.0,
        release_blocks_per_s=50.0,
    )
    now = brought_up(view, 2.0, 16)  # 20 blocks grown, 100 of 400 freed: a quarter of the sequences
    assert (now.active_blocks, now.running_requests, now.running_by_class) == (320.0, 15.0, (11.25, 3.75))
    assert now.running_tokens == 6_000.0 - 1_500.0 + 320.0


def a_router(policy: Policy, **setup) -> Router:
    pool = replace(POOL, routers=RouterSetup(period_ns=100 * MS, **setup))
    return Router(0, pool, policy, tiny.laws(), 7)


def state(generated: int) -> DecodeState:
    return DecodeState(0, 0, 0, 0, 0, 0, 0, generated, 0, (), 0)


def test_a_rate_is_half_forgotten_after_its_half_life():
    router = a_router(replace(tiny.POLICY, half_life_s=0.1))
    for tick, generated in enumerate((0, 160, 480)):  # 100, then 200 blocks a second
        router.take_sample(tick * 100 * MS, [], [state(generated)])
    assert router.samples[-1].growth == [pytest.approx(150.0)]


def test_a_part_of_the_samples_never_comes():
    router = a_router(tiny.POLICY, loss_frac=0.3)
    for tick in range(2_000):
        router.take_sample(tick * 100 * MS, [], [state(16 * tick)])
    assert len(router.samples) / 2_000 == pytest.approx(0.7, abs=0.03)
    assert {round(s.growth[0], 6) for s in router.samples[1:]} == {10.0}  # over the time between those that came


def test_a_pair_is_kept_for_its_dwell():
    router = a_router(replace(tiny.POLICY, hysteresis_s=1.0, dwell_s=0.2))
    request = Mock(class_index=0)
    router.chose(request, (0, 1), 0)
    router.chose(request, (0, 1), 150 * MS)  # the same again: since 0
    assert router._last_pair(0, 200 * MS) == (0, 1)
    assert router._last_pair(0, 200 * MS + 1) is None
    router.chose(request, (1, 1), 300 * MS)
    assert router._last_pair(0, 400 * MS) == (1, 1)


def test_harm_counts_those_that_the_longer_step_pushes_over():
    view = router_view(Draws(3))
    d = replace(
        view.decode[0],
        accepting=True,
        compatible=True,
        usable_blocks=1e6,
        name="d0",
        running_requests=9.0,
        receiving_requests=0.0,
        booked_requests=0.0,
        running_tokens=900.0,
        receiving_tokens=0.0,
        running_by_class=(4.0, 3.0, 2.0),
    )
    p = replace(view.prefill[0], accepting=True, compatible=True, total_blocks=10**6, backlog_requests=3.0, age_s=0.0)
    p = replace(p, backlog_tokens=1e5, available_blocks=1e6)
    view = replace(view, prefill=(p,), decode=(d,), request=replace(view.request, class_index=0, prefilled_on=None))
    laws = replace(tiny.laws(), decode=one_type(StepLaw((0.0, 1e-3, 0.0, 0.0))))  # 9 ms before, 10 ms after
    targets = {"tight": 0.0085, "between": 0.0095, "loose": 0.02}  # missed before, pushed over, kept
    classes = tuple(
        ClassPolicy(n, tpot_target_s=t, weights=(1, 1, 1, 1, 0, 1, 1, 0.1, 0.0)) for n, t in targets.items()
    )
    policy = Policy("routecal", classes, risk_tpot=risk_table(0.0))
    found = decide(policy, laws, view).candidates[0].terms
    assert found[7] == pytest.approx(3.0)
    assert found[8] == found[0] * p.backlog_requests
    unweighted = tuple(replace(c, weights=(*c.weights[:7], 0.0, 0.0)) for c in classes)
    assert decide(replace(policy, classes=unweighted), laws, view).candidates[0].terms[7] is None


def test_every_node_is_drawn_as_often_as_the_others():
    view = replace(router_view(Draws(5)), last_pair=None)
    p, d = (replace(n, accepting=True, compatible=True) for n in (view.prefill[0], view.decode[0]))
    p, d = replace(p, total_blocks=10**6), replace(d, usable_blocks=1e6, active_blocks=0.0, booked_blocks=0.0)
    view = replace(view, prefill=(p,) * 4, decode=(d,) * 3)
    policy = Policy("routecal", (ClassPolicy("a"), ClassPolicy("b")), draws_p=1, draws_d=2)
    seen = []
    for seed in range(600):
        request = replace(view.request, tie_seed=seed, prefilled_on=None, class_index=0)
        candidates = decide(policy, estimators(), replace(view, request=request)).candidates
        assert len(candidates) == 2
        seen += [(c.prefill, c.decode) for c in candidates]
    assert np.bincount([i for i, _ in seen]) == pytest.approx(300, abs=60)
    assert np.bincount([j for _, j in seen]) == pytest.approx(400, abs=60)


def recorded(policy: Policy, load: Workload, routers: RouterSetup):
    pool, known = replace(POOL, routers=routers), np.full(load.requests, 16, np.int32)
    rows = np.arange(load.requests)
    result, made = replay_recorded(
        pool,
        tiny.laws(),
        policy,
        replace(load, output_tokens=known),
        seed=3,
        estimated_output=known,
        expected_output=known,
        recording=Recording(np.zeros(0, np.int64), rows),
    )
    return result, made, regret_of(made, result, policy, load, rows)


def test_a_live_router_that_believes_the_true_laws_regrets_nothing():
    policy = Policy("routecal", (ClassPolicy("any", weights=(1, 1, 1, 1, 0, 0, 1)),))
    load = tiny.workload(*[(7 * k, 16 + 40 * (k % 3), 16) for k in range(12)], pairs=ANY * 12)
    result, _, regret = recorded(policy, load, RouterSetup())
    assert regret.ttft_s == pytest.approx(0.0, abs=1e-12)
    assert result.predicted_ttft_s - regret.ttft_s == pytest.approx(regret.bound_ttft_s, abs=1e-12)


def test_regret_is_the_queue_that_another_p_does_not_have():
    # Round robin gives the third prompt to P 0, where 64 tokens (16.4 ms) wait; P 1 has 16 (11.6 ms).
    policy = replace(tiny.POLICY, classes=(ClassPolicy("any", ttft_target_s=0.0515),))
    load = tiny.workload((0, 64, 16), (0, 16, 16), (0, 16, 16), pairs=ANY * 3)
    _, made, regret = recorded(policy, load, RouterSetup())
    assert regret.ttft_s == pytest.approx([0.0, 0.0, 0.0164 - 0.0116])
    # 11.6 ms of queue, 11.6 of its own, 16 of transfer, a step of 5: 44.2 ms; 49.0 on P 0.
    assert regret.bound_ttft_s[2] == pytest.approx(0.0442)
    assert regret.missed.tolist() == [False, False, False]
    tight = replace(policy, classes=(ClassPolicy("any", ttft_target_s=0.045),))
    again = recorded(tight, load, RouterSetup())[2]
    assert again.missed.tolist() == [False, False, True]
    assert again.by_class(load.class_index, 1) == [(pytest.approx(0.0016), pytest.approx(1 / 3))]
    assert made.decision_true_ttft_s.shape == (3, 2, 2)
