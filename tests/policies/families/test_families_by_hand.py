"""The documented formula of every family on numbers that a person can follow."""

from __future__ import annotations

from collections import Counter

import pytest

from policies.families import dynamo_cost, hit_capacity_health, llm_d_scorers, sglang_cache_aware
from policies.families.params import NoParams, to_row
from policies.families.registry import BY_NAME, decide
from policies.policy import ClassPolicy, Policy
from tests.policies.families.worked import d, p, view
from tests.policies.views import estimators

LAWS = estimators()


def keys(family: str, params: object, seen, *, decode: bool = False) -> list[float]:
    nodes = seen.decode if decode else seen.prefill
    return BY_NAME[family].keys(params, seen, range(len(nodes)), decode)


def chosen(family: str, params: object, seen) -> tuple[int | None, int | None]:
    policy = Policy(family, (ClassPolicy("chat"),), params=to_row(params))
    decision = decide(policy, LAWS, seen)
    return decision.prefill, decision.decode


def test_hit_capacity_health():
    seen = view([p(hit_tokens=512, available_blocks=40.0, age_s=15.0), p()], [d(active_blocks=60.0), d(age_s=60.0)])
    params = hit_capacity_health.Params()
    # 0.5 · 512/1024 + 0.3 · 40/100 + 0.2 · (1 - 15/30); a node without hit: 0.3 + 0.2
    assert keys("hit_capacity_health", params, seen) == pytest.approx([-(0.25 + 0.12 + 0.1), -0.5])
    assert keys("hit_capacity_health", params, seen, decode=True) == pytest.approx([-(0.3 * 0.4 + 0.2), -0.3])


def test_dynamo_p():
    # Outstanding 2,048 + prompt 1,024 in blocks of 128, less 4 cached ones; the other P: 1,024 / 128.
    seen = view([p(own_tokens=2048.0, own_prompts=2.0, hit_tokens=512), p()], [d(), d()])
    assert keys("dynamo_cost", dynamo_cost.Params(), seen) == [24.0 - 4.0, 8.0]
    decayed = dynamo_cost.CostFn(
        overlap_score_credit=2.0,
        overlap_score_credit_decay=1.0,
        prefill_load_scale=0.5,
        decode_active_request_weight=3.0,
    )
    # Credit 2 · 4 blocks / (1 + 1 · (16 excess / 8 prompt blocks)) = 8/3; 0.5 · (24 - 8/3) + 3 · 2
    found = keys("dynamo_cost", dynamo_cost.Params(prefill=decayed), seen)
    assert found == pytest.approx([0.5 * (24 - 8 / 3) + 6, 4.0])


def test_dynamo_p_credit_never_pays_more_than_the_work():
    seen = view([p(hit_tokens=896), p()], [d()])
    params = dynamo_cost.Params(prefill=dynamo_cost.CostFn(overlap_score_credit=4.0))
    assert keys("dynamo_cost", params, seen) == [0.0, 8.0]


def test_dynamo_d():
    seen = view([p()], [d(own_blocks=20.0, own_requests=3.0, new_blocks=2.0), d(own_blocks=18.0, new_blocks=8.0)])
    assert keys("dynamo_cost", dynamo_cost.Params(), seen, decode=True) == [22.0, 26.0]
    params = dynamo_cost.Params(decode=dynamo_cost.CostFn(decode_active_request_weight=2.0, overlap_score_credit=9.0))
    assert keys("dynamo_cost", params, seen, decode=True) == [28.0, 26.0]


def test_dynamo_temperature_draws_from_the_softmax():
    """Costs 8 and 16, range 8, temperature 1: odds e to 1."""
    params = dynamo_cost.Params(prefill=dynamo_cost.CostFn(router_temperature=1.0))
    nodes = [p(), p(own_tokens=1024.0)]
    picked = Counter(chosen("dynamo_cost", params, view(nodes, [d()], seed=seed))[0] for seed in range(4000))
    assert picked[0] / 4000 == pytest.approx(2.71828 / 3.71828, abs=0.025)


def test_llm_d_totals():
    profile = llm_d_scorers.Profile(running=1.0, load_aware=1.0, active_request=1.0, max_busy_score=0.5)
    nodes = [
        p(waiting_requests=32.0, running_requests=1.0, own_requests=4.0, hit_tokens=512, available_blocks=25.0),
        p(waiting_requests=0.0, running_requests=3.0, own_requests=0.0),
    ]
    found = keys("llm_d_scorers", llm_d_scorers.Params(prefill=profile), view(nodes, [d()]))
    # queue 0 and 1 (× 2), running 1 and 0, KV 0.25 and 1 (× 2), load 0.5 · (1 - 32/128) and 0.5, own (4 - 4)/4 · 0.5
    # and 1 (idle), prefix 4/8 and 0 (× 3)
    assert found == pytest.approx([-(0 + 1 + 0.5 + 0.375 + 0 + 1.5), -(2 + 0 + 2 + 0.5 + 1 + 0)])


def test_llm_d_prefix_by_length():
    profile = llm_d_scorers.Profile(queue=0, kv_cache_utilization=0, prefix_cache=1, match_length_weight=0.5)
    found = keys("llm_d_scorers", llm_d_scorers.Params(prefill=profile), view([p(hit_tokens=512)], [d()]))
    assert found == pytest.approx([-(0.5 * 512 / 8192 + 0.5 * 4 / 8)])


def test_llm_d_scale_of_all_weights_changes_no_choice():
    nodes = [p(waiting_requests=1.0, hit_tokens=512), p(waiting_requests=2.0, available_blocks=50.0), p(hit_tokens=128)]
    for scale in (0.5, 4.0):
        for picker in ("max-score-picker", "weighted-random-picker"):
            plain = llm_d_scorers.Profile(picker=picker)
            scaled = llm_d_scorers.Profile(
                queue=2 * scale, kv_cache_utilization=2 * scale, prefix_cache=3 * scale, picker=picker
            )
            for seed in range(50):
                seen = view(nodes, [d()], seed=seed)
                found = [chosen("llm_d_scorers", llm_d_scorers.Params(prefill=x), seen) for x in (plain, scaled)]
                assert found[0] == found[1]


def test_llm_d_weighted_picker_has_the_odds_of_the_scores():
    profile = llm_d_scorers.Profile(queue=0, kv_cache_utilization=0, prefix_cache=1.0, picker="weighted-random-picker")
    nodes = [p(hit_tokens=768), p(hit_tokens=256), p()]
    params = llm_d_scorers.Params(prefill=profile)
    picked = Counter(chosen("llm_d_scorers", params, view(nodes, [d()], seed=seed))[0] for seed in range(4000))
    assert picked[2] == 0
    assert picked[0] / 4000 == pytest.approx(0.75, abs=0.025)


def test_sglang_balanced_takes_the_longest_match():
    seen = view([p(own_requests=9.0, hit_tokens=512), p(own_requests=1.0, hit_tokens=128)], [d()])
    assert chosen("sglang_cache_aware", sglang_cache_aware.Params(), seen)[0] == 0


def test_sglang_a_short_match_does_not_count():
    seen = view([p(own_requests=9.0, hit_tokens=256), p(own_requests=1.0)], [d()])
    assert chosen("sglang_cache_aware", sglang_cache_aware.Params(), seen)[0] == 1


@pytest.mark.parametrize(("most", "takes"), [(64.0, 0), (65.0, 1)])
def test_sglang_out_of_balance_takes_the_least_load(most, takes):
    seen = view([p(own_requests=most, hit_tokens=896), p(own_requests=0.0)], [d()])
    assert chosen("sglang_cache_aware", sglang_cache_aware.Params(), seen)[0] == takes


def test_sglang_out_of_balance_needs_both_thresholds():
    seen = view([p(own_requests=250.0, hit_tokens=896), p(own_requests=180.0)], [d()])
    assert chosen("sglang_cache_aware", sglang_cache_aware.Params(), seen)[0] == 0  # 250 <= 1.5 · 180


def test_sglang_least_load():
    params = sglang_cache_aware.Params(prefill_policy="least_load", decode_policy="least_load")
    nodes = [p(backlog_tokens=4000.0), p(available_blocks=20.0), p(backlog_tokens=None, own_requests=2.0)]
    # 4,000 / 2,000; 0.15 · 0.8 / 0.2; 2 · 1,024 / 2,000
    assert keys("sglang_cache_aware", params, view(nodes, [d()])) == pytest.approx([2.0, 0.6, 1.024])


def test_power_of_two_compares_two_and_falls_back_to_counts():
    seen = view([p(available_blocks=10.0), p(available_blocks=90.0), p(available_blocks=50.0)], [d()])
    found = keys("power_of_two", None, seen)
    assert sorted(found)[-1] == 1e300
    assert sum(key < 1.0 for key in found) == 2
    blind = view([p(available_blocks=None, own_requests=3.0), p(available_blocks=90.0, own_requests=5.0)], [d()])
    assert keys("power_of_two", None, blind) == [3.0, 5.0]


def test_power_of_two_draws_every_pair_alike():
    drawn = Counter()
    for seed in range(6000):
        seen = view([p(), p(), p(), p()], [d()], seed=seed)
        drawn[tuple(i for i, key in enumerate(keys("power_of_two", None, seen)) if key < 1.0)] += 1
    assert len(drawn) == 6
    assert all(900 < count < 1100 for count in drawn.values())


def test_least_request_and_random():
    seen = view([p(own_prompts=2.0), p(own_prompts=1.0)], [d(own_requests=0.0), d(own_requests=7.0)])
    assert chosen("least_request", NoParams(), seen) == (1, 0)
    picked = Counter(chosen("random", NoParams(), view([p(), p()], [d(), d()], seed=s)) for s in range(4000))
    assert len(picked) == 4
    assert all(880 < count < 1120 for count in picked.values())
