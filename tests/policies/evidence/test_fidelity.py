"""Gate 1a on replays made by hand: agreement passes, each kind of disagreement fails, too little data is not judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.errors import TwinError
from policies.evidence.fidelity import FidelityLimits, Logged, LoggedReplay, forced_placement_gate
from policies.evidence.gates import Gate
from policies.objective import latency
from tests.policies import world

CLASSES = ("chat", "batch")


def day(
    *,
    ttft: float = 1.0,
    tpot: float = 1.0,
    cached: float = 64.0,
    tail: float = 1.0,
    requests: int = 3000,
    seed: int = 0,
) -> LoggedReplay:
    """A replay whose log differs by these factors; `tail` on the slowest 3 % of TTFT."""
    rng = np.random.default_rng(seed)
    load = world.workload(requests)
    load = replace(load, forced_prefill=np.zeros(requests, np.int32), forced_decode=np.zeros(requests, np.int32))
    replay = world.replay_of(load, rng.lognormal(-1, 0.5, requests), rng.lognormal(-4, 0.2, requests))
    times = latency(load, replay)
    logged_ttft = times.ttft_s * ttft
    logged_ttft = np.where(times.ttft_s > np.quantile(times.ttft_s, 0.97), logged_ttft * tail, logged_ttft)
    return LoggedReplay(load, replay, Logged(logged_ttft, times.tpot_s * tpot, np.full(requests, cached)))


def gate(*days: LoggedReplay) -> Gate:
    return forced_placement_gate(days, CLASSES)


def test_a_twin_that_agrees_passes() -> None:
    found = gate(day(ttft=1.05, tpot=0.97))
    assert found.status == "pass"
    assert found.value == pytest.approx((1 / 0.97 - 1) / 0.05, rel=1e-6)
    assert found.numbers["chat.ttft_p50"] == pytest.approx(1 / 1.05 - 1)
    assert gate(day()).detail == "2 classes agree exactly"


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (day(ttft=1.15), "ttft_p50"),
        (day(ttft=0.85), "ttft_p50"),
        (day(tail=1.4), "ttft_p99"),
        (day(tpot=1.07), "tpot_p50"),
        (day(cached=200.0), "hit_share"),
    ],
)
def test_each_disagreement_fails(wrong: LoggedReplay, names: str) -> None:
    found = gate(wrong)
    assert found.status == "fail"
    assert names in found.detail


def test_small_classes_are_not_judged() -> None:
    found = gate(day(requests=1200, ttft=1.05))  # about 360 of the second class
    assert "batch.requests" in found.numbers
    assert "batch.ttft_p50" not in found.numbers
    assert gate(day(requests=300)).status == "not_run"
    assert gate().status == "not_run"


def test_days_are_taken_together() -> None:
    days = [day(requests=300, seed=s) for s in range(3)]
    assert gate(*days).status == "pass"


def test_requests_without_a_logged_pair_do_not_count() -> None:
    whole = day(ttft=1.5)
    workload = replace(whole.workload, forced_decode=np.full(whole.workload.requests, -1, np.int32))
    assert gate(replace(whole, workload=workload)).status == "not_run"


def test_unknown_cached_tokens_leave_the_hit_share_out() -> None:
    found = gate(day(cached=np.nan))
    assert found.status == "pass"
    assert not [name for name in found.numbers if name.endswith("hit_share")]


def test_limits_are_settings() -> None:
    assert forced_placement_gate([day(ttft=1.15)], CLASSES, FidelityLimits(ttft_p50=0.2)).status == "pass"


def test_a_log_of_another_length_is_refused() -> None:
    whole = day()
    short = Logged(*(np.zeros(5) for _ in range(3)))
    with pytest.raises(TwinError, match="one row a request"):
        gate(replace(whole, logged=short))
