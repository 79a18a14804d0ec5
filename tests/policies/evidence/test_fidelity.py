"""Gate 1a on replays made by hand: agreement passes, each kind of disagreement fails, too little data is not judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from features.errors import TwinError
from policies.evidence.fidelity import FidelityLimits, Logged, LoggedReplay, block_of, forced_placement_gate
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
    return LoggedReplay.of(load, [replay], Logged(logged_ttft, times.tpot_s * tpot, np.full(requests, cached)))


def gate(*days: LoggedReplay) -> Gate:
    return forced_placement_gate(days, CLASSES)


def test_a_twin_that_agrees_passes() -> None:
    found = gate(day(ttft=1.05, tpot=0.97))
    assert found.status == "pass"
    assert found.value == pytest.approx((1 / 0.97 - 1) / 0.05, rel=1e-6)
    assert found.numbers["chat.ttft_p50"] == pytest.approx(1 / 1.05 - 1)
    assert found.interval is not None
    assert 0 < found.interval[0] <= found.value <= found.interval[1] < 1
    same = gate(day())
    assert (same.detail, same.value, same.interval) == ("2 classes agree exactly", 0.0, (0.0, 0.0))


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
    assert found.interval is not None
    assert found.interval[0] > 1


def lucky(spread: float, *, shift: float = 0.0, seed: int = 0) -> LoggedReplay:
    """A day in which every half minute of the replay has luck of its own, in logs, around a shift."""
    whole = day(seed=seed)
    block = (whole.workload.arrival_ns // 30_000_000_000).astype(int)
    luck = np.random.default_rng(seed + 100).normal(0.0, spread, block.max() + 1)
    (replayed,) = whole.replays
    return replace(
        whole, replays=(replace(replayed, ttft_s=replayed.ttft_s * np.exp(luck - luck.mean() + shift)[block]),)
    )


def test_a_difference_beyond_its_limit_that_may_be_chance_is_undecided() -> None:
    found = gate(lucky(0.3, shift=0.12))
    assert (found.status, found.undecided) == ("not_run", True)
    assert found.detail.startswith("undecided: ttft_p")
    assert "holds the limit" in found.detail
    assert found.value is not None
    assert found.interval is not None
    assert found.interval[0] <= 1 < found.value <= found.interval[1]
    sure = gate(lucky(0.02, shift=0.15))
    assert sure.status == "fail", sure.detail
    assert gate(lucky(0.02, shift=0.05)).status == "pass"


def test_one_sure_difference_fails_the_gate_whatever_is_undecided_beside_it() -> None:
    wrong = lucky(0.4, shift=0.15)
    (replayed,) = wrong.replays
    found = gate(replace(wrong, replays=(replace(replayed, tpot_s=replayed.tpot_s * 1.07),)))
    assert found.status == "fail"
    assert "tpot_p50 of class" in found.detail
    assert found.value == pytest.approx(1.4)


def test_the_order_of_classes_changes_nothing() -> None:
    whole = lucky(0.2, shift=0.1)
    swapped = replace(whole, workload=replace(whole.workload, class_index=1 - whole.workload.class_index))
    found, other = gate(whole), forced_placement_gate([swapped], CLASSES[::-1])
    assert other == replace(found, numbers=other.numbers)
    assert dict(other.numbers) == dict(found.numbers)


def test_every_number_stands_with_its_interval() -> None:
    numbers = gate(day(ttft=1.05)).numbers
    for key in ("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99", "hit_share"):
        for label in CLASSES:
            assert numbers[f"{label}.{key}.low"] <= numbers[f"{label}.{key}"] <= numbers[f"{label}.{key}.high"]
    assert (numbers["block_s"], numbers["replays"]) == (30.0, 1.0)


def test_blocks_are_of_the_arrivals_and_a_short_rest_joins_the_last() -> None:
    load = replace(world.workload(4), arrival_ns=np.array([0, 5, 36, 74], np.int64) * 10**9)
    load = replace(load, scored=np.array([False, True, True, True]))
    assert block_of(load, 30.0).tolist() == [0, 0, 1, 1]
    later = replace(load, arrival_ns=np.array([0, 5, 36, 85], np.int64) * 10**9)
    assert block_of(later, 30.0).tolist() == [0, 0, 1, 2]
    assert block_of(replace(load, scored=np.zeros(4, np.bool_)), 30.0).tolist() == [0, 0, 0, 0]


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
