"""Whole nights, search and all, in a world where every policy is equally good: almost none may be called better."""

from __future__ import annotations

from dataclasses import replace

from policies.evidence.evidence import Plan, gather
from policies.policy import ClassPolicy, default_policy
from policies.search.candidates import DEFAULT, INCUMBENT, SEARCHED, find_candidates, train_cases
from policies.search.search import Budget
from policies.search.space import space_around
from policies.search.workers import WorkerPool
from tests.policies.stub import StubFactory

NIGHTS = 24


def test_a_search_in_noise_finds_nothing() -> None:
    policy = default_policy((ClassPolicy("chat"),))
    factory = StubFactory(by_family={"routecal": 0.8, "lmetric": 0.8}, own_noise=0.05, weights_matter=False)
    space = space_around(policy, {}, (0.5, 0.9))
    verdicts: list[str] = []
    gains: list[float] = []
    with WorkerPool(factory, 1) as pool:
        for night in range(NIGHTS):
            days = tuple(f"night {night} day {d}" for d in range(6))
            found = find_candidates(
                pool,
                space,
                train_cases(days[:2]),
                incumbent=replace(policy, family="lmetric"),
                families=("lowest_utilisation",),
                racks=1,
                seed=night,
                budget=Budget(trials=16, batch=8, startup=8, patience=9),
            )
            plan = Plan(
                days[:2], days[2:5], days[5:], seed=night, history_days=6, resamples=500, margin=0.0, sweep=None
            )
            # What was searched is put to the test even where the choice on train would have kept the incumbent.
            evidence = gather(pool, found.arms, winner=SEARCHED, incumbent=INCUMBENT, default=DEFAULT, plan=plan)
            verdicts.append(evidence.verdict)
            gains.append(found.result.best.value - found.result.trials[0].value)
    assert sum(gain > 0.002 for gain in gains) > NIGHTS / 2  # on train the search believes that it found something
    assert verdicts.count("better") <= 2
    assert verdicts.count("not distinguishable") >= NIGHTS - 4
