"""The worked case: a long prompt, an emptier D that grows behind a slow link, a fuller one that releases.

All numbers are those of the case: 20,000 blocks of 16 tokens, 64,000 + 2,000 tokens, Q + C = 8.5 s.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from models.portable.estimators import Estimators, RiskSigma
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from policies.families.registry import decide
from policies.policy import ClassPolicy, Policy
from policies.view import DecodeView, PrefillView, RequestView, RouterView
from tests.policies.views import LENGTH, run_kernel

A, B = 0, 1
GB_PER_S = 1e9 / 8
LAWS = Estimators(
    length=LENGTH,
    prefill=one_type(StepLaw((0.0, 8.5 / 64_000, 0.0, 0.0, 0.0))),
    decode=one_type(StepLaw((0.012, 5e-5, 1.5e-8, 0.0))),
    transfer=TransferLaw({"local": 0.0, "cross": 0.0}, {"local": 1.0, "cross": 1.0}),
    risk=RiskSigma(),
)


def decode_node(name, *, used, sequences, release, gbps) -> DecodeView:
    return DecodeView(
        name=name,
        rack=0,
        accepting=True,
        compatible=True,
        port_bytes_per_s=gbps * GB_PER_S,
        resident_tokens=0,
        usable_blocks=20_000.0,
        active_blocks=used * 20_000,
        reserved_blocks=0.0,
        inflight_blocks=0.0,
        reclaimable_blocks=0.0,
        booked_blocks=0.0,
        queued_blocks=0.0,
        running_requests=float(sequences),
        running_tokens=used * 20_000 * 16,
        receiving_requests=0.0,
        receiving_tokens=0.0,
        booked_requests=0.0,
        booked_tokens=0.0,
        growth_blocks_per_s=sequences * 25 / 16,
        release_blocks_per_s=release,
        age_s=0.0,
    )


def the_view(*, gbps_a=25, release_b=680.0) -> RouterView:
    prefill = PrefillView("p", 0, True, True, 20_000, 400 * GB_PER_S, 0, 0.0, 0.0, 20_000.0, 0.0, 0.0)
    decode = (
        decode_node("D-A", used=0.45, sequences=80, release=0.0, gbps=gbps_a),
        decode_node("D-B", used=0.68, sequences=24, release=release_b, gbps=400),
    )
    return RouterView(RequestView(64_000, 2_000, 1_000, 0, 0.0, 7), (prefill,), decode, (), 16, 327_680, 8192, 0)


def the_policy(family="routecal", **changes) -> Policy:
    case = ClassPolicy(
        "long", weights=(1, 1, 1, 1, 10, 1, 1), ttft_target_s=20.0, tpot_target_s=0.05, reserve_blocks=1000
    )
    return replace(Policy(family, (case,), high_water=0.65, horizon_s=60.0), **changes)


def terms(view: RouterView, **changes):
    candidates = decide(the_policy(**changes), LAWS, view).candidates
    names = ("Q", "C", "X", "D", "pressure", "risk", "hit")
    return {c.decode: dict(zip(names, c.terms, strict=False)) for c in candidates}


def projected(view: RouterView) -> tuple[float, float]:
    """U of both D, read back from a pressure that starts near 0."""
    found = terms(view, high_water=1e-9)
    return math.sqrt(found[A]["pressure"]), math.sqrt(found[B]["pressure"])


def test_prefill_takes_eight_and_a_half_seconds():
    found = terms(the_view())
    assert found[A]["Q"] + found[A]["C"] == pytest.approx(8.5)
    assert found[A]["X"] == pytest.approx(64_000 * 327_680 / (25 * GB_PER_S))


@pytest.mark.parametrize(("gbps", "seconds"), [(25, 3.2), (100, 0.8), (200, 0.4), (400, 0.2)])
def test_ten_gigabytes_over_a_link(gbps, seconds):
    view = the_view()
    view = replace(
        view,
        request=replace(view.request, prompt_tokens=10_000),
        kv_bytes_per_token=10**6,
        decode=tuple(replace(d, port_bytes_per_s=gbps * GB_PER_S) for d in view.decode),
    )
    assert terms(view)[A]["X"] == pytest.approx(seconds, rel=1e-12)


def test_projected_utilisation():
    a, b = projected(the_view())
    assert a == pytest.approx(0.75, abs=0.005)
    assert b == pytest.approx(0.60, abs=0.005)


def test_lowest_utilisation_takes_a_and_the_score_takes_b():
    view = the_view()
    assert decide(the_policy("lowest_utilisation"), LAWS, view).decode == A
    assert decide(the_policy(), LAWS, view).decode == B
    assert run_kernel(the_policy("lowest_utilisation"), LAWS, view)[0] == A
    assert run_kernel(the_policy(), LAWS, view)[0] == B


def test_the_default_weights_take_b_too():
    policy = the_policy()
    case = replace(policy.classes[0], weights=ClassPolicy("x").weights)
    assert decide(replace(policy, classes=(case,)), LAWS, the_view()).decode == B


def test_both_links_fast():
    view = the_view(gbps_a=400)
    a, _ = projected(view)
    assert a == pytest.approx(0.71, abs=0.005)
    found = terms(view)
    assert found[A]["pressure"] > 0.0 == found[B]["pressure"]


def test_b_without_release():
    view = the_view(release_b=0.0)
    _, b = projected(view)
    assert b == pytest.approx(0.90, abs=0.005)
    found = terms(view)
    assert found[B]["pressure"] > found[A]["pressure"] > 0.0
