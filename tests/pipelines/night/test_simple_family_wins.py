"""A world in which LMetric is best: it is found, judged, published, and is what routers load."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

from pipelines.night.policy import evidence_json, proven, publish
from policies.conformance import check
from policies.evidence.evidence import Plan, gather
from policies.evidence.gates import DRILLS, FORCED_PLACEMENT, POLICY_REPLAY, Gate
from policies.policy import default_policy
from policies.policy_file import Origin, build, policy_of
from policies.search.candidates import DEFAULT, INCUMBENT, find_candidates, train_cases
from policies.search.search import Budget
from policies.search.space import space_around
from policies.search.workers import WorkerPool
from policies.store import PolicyStore
from tests.pipelines.night.test_policy import AT, LAWS, NO_KEYS, pool_in
from tests.policies.stub import StubFactory

PLAN = Plan(
    train_days=("d1", "d2"), validation_days=("d3", "d4", "d5"), test_days=("d6",), seed=1, history_days=8,
    resamples=500, waivers=(POLICY_REPLAY, DRILLS), refits=8,
)  # fmt: skip


def test_lmetric_is_published_where_it_is_best(tmp_path: Path) -> None:
    pool = replace(pool_in(tmp_path), families=("routecal", "lmetric", "lowest_utilisation"))
    default = default_policy(pool.classes)
    world = StubFactory(by_family={"routecal": 0.85, "lmetric": 0.93, "lowest_utilisation": 0.8}, own_noise=0.01)
    with WorkerPool(world, 1) as workers:
        found = find_candidates(
            workers, space_around(default, {}, (0.5, 0.9)), train_cases(PLAN.train_days), incumbent=pool.incumbent,
            families=("lmetric", "lowest_utilisation"), racks=1, seed=1,
            budget=Budget(trials=16, batch=8, startup=8, patience=9),
        )  # fmt: skip
        evidence = gather(
            workers, found.arms, winner=found.winner, incumbent=INCUMBENT, default=DEFAULT, plan=PLAN,
            gates=[Gate(FORCED_PLACEMENT, "pass", "fine", 0.4, 1.0)], search=found.summary,
        )  # fmt: skip
    assert (found.winner, evidence.verdict, evidence.promotion_cap) == ("lmetric", "better", "current")
    origin = Origin(pool.name, date(2026, 3, 6), "m", "e", 64, 327_680, 2048, "rev", "pairs")
    file = proven(pool, build(found.policy, LAWS, origin), found.policy, LAWS, evidence_json(evidence))
    store = PolicyStore(tmp_path / "store", pool.name)
    assert publish(store, file, NO_KEYS, issued_at=AT).kept_back == ()
    current = store.current()
    assert current is not None
    assert current.family == policy_of(current).family == "lmetric"
    assert check(current) == []
