"""A night's candidates on the stub evaluator: the searched policy wins where it has shown its lead only."""

from __future__ import annotations

from dataclasses import replace

from policies.evidence.evidence import to_json
from policies.policy import ClassPolicy, default_policy
from policies.search.candidates import Candidates, find_candidates, train_cases
from policies.search.search import Budget
from policies.search.space import space_around
from policies.search.workers import WorkerPool
from tests.policies.stub import StubFactory

DEFAULT = default_policy((ClassPolicy("chat"),))


def night(factory: StubFactory) -> Candidates:
    space = space_around(DEFAULT, {"TransferTime": "all paths have the same rate"}, (0.5, 0.9))
    with WorkerPool(factory, 1) as pool:
        return find_candidates(
            pool,
            space,
            train_cases(["d1", "d2"]),
            incumbent=replace(DEFAULT, family="lowest_utilisation", same_rack="decode_first"),
            families=("lowest_utilisation", "lmetric"),
            racks=2,
            seed=1,
            budget=Budget(trials=24, batch=8, startup=8, patience=9),
        )


def test_the_searched_policy_wins_where_it_leads() -> None:
    found = night(StubFactory())
    assert [a.name for a in found.arms][:2] == ["incumbent", "default"]
    assert len(found.arms) == 9
    assert found.winner == "searched"
    assert found.policy.classes[0].weights[5] > 1.5
    assert set(found.summary["frozen"]) == {"TransferTime", "reserve_multiplier"}
    assert to_json(found.summary) == dict(found.summary)


def test_a_family_that_is_better_wins() -> None:
    found = night(StubFactory(by_family={"routecal": 0.7, "lmetric": 0.9}))
    assert found.winner == "lmetric/decode_first"


def test_lengths_are_the_logs_at_the_load_nearest_to_one() -> None:
    cases = train_cases(["d1", "d2"], (0.9, 1.0, 1.15), drawn=True)
    assert [(c.load, c.draw) for c in cases] == [(0.9, 1), (1.0, 0), (1.15, 2)] * 2
    assert {c.draw for c in train_cases(["d1"], (0.9, 1.0))} == {0}
    told = night(StubFactory()).summary["cases"]
    assert told[0] == {"day": "d1", "load": 1.0, "lengths": "logged"}


def test_where_all_are_equal_what_runs_now_stays() -> None:
    found = night(StubFactory(by_family={"routecal": 0.81, "lmetric": 0.8}, own_noise=0.05))
    assert found.winner == "incumbent"
