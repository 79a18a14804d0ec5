"""The replay evaluator on a small real twin: workloads survive the scratch folder, scores repeat and make sense."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from features.errors import TwinError
from models.portable.estimators import Estimators
from models.portable.steps import StepLaw, one_type
from models.portable.transfer import TransferLaw
from policies.evidence.drills import NAMES
from policies.lengths import constant_length
from policies.policy import ClassPolicy, Policy, default_policy
from policies.search.cases import Case
from policies.search.identify import frozen_knobs
from policies.search.race import racer
from policies.search.replay import ReplayFactory, load_workload, save_workloads
from policies.search.search import Budget, search
from policies.search.space import space_around
from policies.search.workers import WorkerPool
from policies.twin.cluster import RouterSetup
from policies.twin.workload import Arrivals, Workload
from tests.policies import world
from tests.policies.twin.scenarios import make_arrivals

LAWS = Estimators(
    length=replace(constant_length(0.0), rows=((200.0, 360.0),)),
    prefill=one_type(StepLaw((0.01, 8e-5, 0.0, 0.0, 0.0)), {"p1": 1.5}),
    decode=one_type(StepLaw((0.008, 3e-4, 0.0, 0.0))),
    transfer=TransferLaw({"local": 0.001, "cross": 0.001}, {"local": 0.9, "cross": 0.9}),
)


def default() -> Policy:
    return default_policy(
        (ClassPolicy("chat", ttft_target_s=1.0, tpot_target_s=0.03), ClassPolicy("batch", ttft_target_s=4.0))
    )


def prepared(folder: Path) -> ReplayFactory:
    save_workloads(folder, {f"d{seed}": world.workload(600, rate_per_s=7.0, seed=seed) for seed in (1, 2)})
    return ReplayFactory(folder, world.cluster(), LAWS, world.GOAL, seed=3)


def test_a_workload_survives_the_scratch_folder(tmp_path: Path) -> None:
    before = replace(world.workload(50, warm_up=5), request_ids=("a",) * 50)
    save_workloads(tmp_path, {"d": before})
    after = load_workload(tmp_path, "d")
    for f in fields(Workload):
        if f.name != "request_ids":
            np.testing.assert_array_equal(getattr(before, f.name), getattr(after, f.name), strict=True)
    with pytest.raises(TwinError, match="scratch folder"):
        load_workload(tmp_path, "e")


def test_what_routers_know_survives_it_too(tmp_path: Path) -> None:
    known = make_arrivals(np.random.default_rng(1), 50)
    save_workloads(tmp_path, {"d": replace(world.workload(50), arrivals=known)})
    after = load_workload(tmp_path, "d").arrivals
    assert after is not None
    for f in fields(Arrivals):
        np.testing.assert_array_equal(getattr(known, f.name), getattr(after, f.name), strict=True)


def test_a_replay_scores_the_same_again_and_worse_at_more_load(tmp_path: Path) -> None:
    evaluate = prepared(tmp_path).build()
    first = evaluate(default(), Case("d1"))
    assert first == prepared(tmp_path).build()(default(), Case("d1"))
    assert first.outcome.completed == 600
    assert 0 < first.goodput_frac <= 1
    assert evaluate(default(), Case("d1", 1.5)).soft < first.soft
    with pytest.raises(TwinError, match="scratch folder"):
        evaluate(default(), Case("d9"))


def test_every_drill_bites(tmp_path: Path) -> None:
    factory = prepared(tmp_path)
    # KV of a size that keeps links busy, and routers that see samples.
    cluster = replace(factory.cluster, kv_bytes_per_token=300_000, routers=RouterSetup(period_ns=500_000_000))
    evaluate = replace(factory, cluster=cluster).build()
    calm = evaluate(default(), Case("d1"))
    found = {name: evaluate(default(), Case("d1", drill=name)) for name in NAMES}
    assert [name for name, score in found.items() if score.soft == calm.soft] == []
    assert found["decode_failure"].outcome.failed > 0
    assert found["rolling_restart"].outcome.failed > 0
    assert found["burst"].soft < calm.soft
    assert found["load"] == replace(evaluate(default(), Case("d1", 1.25)), case=Case("d1", drill="load"))
    assert evaluate(default(), Case("d1")) == calm
    with pytest.raises(TwinError, match="known"):
        evaluate(default(), Case("d1", drill="flood"))


def test_a_case_may_name_a_refit_of_the_laws(tmp_path: Path) -> None:
    slow = replace(LAWS, prefill=one_type(StepLaw((0.02, 1.6e-4, 0.0, 0.0, 0.0)), {"p1": 1.5}))
    longer = replace(LAWS, length=replace(LAWS.length, rows=((900.0, 2000.0),)))
    factory = replace(prepared(tmp_path), refits=((slow, None), (longer, None)))
    evaluate = factory.build()
    first, *refits = (evaluate(default(), Case("d1", refit=refit)) for refit in (0, 1, 2))
    assert refits[0].soft < first.soft
    # A router that books other lengths decides otherwise.
    assert refits[1].outcome != first.outcome
    assert [s.block_weight for s in refits] == [first.block_weight] * 2
    for laws, score in zip((slow, longer), refits, strict=True):
        alone = replace(factory, estimators=laws, refits=()).build()
        assert replace(score, case=Case("d1")) == alone(default(), Case("d1"))
    assert evaluate(default(), Case("d1")) == first
    with pytest.raises(TwinError, match="refit"):
        evaluate(default(), Case("d1", refit=3))


def test_a_case_may_draw_the_lengths_of_answers(tmp_path: Path) -> None:
    factory = prepared(tmp_path)
    evaluate = factory.build()
    logged, drawn, other, again = (evaluate(default(), Case("d1", draw=draw)) for draw in (0, 1, 2, 1))
    assert drawn == again == factory.build()(default(), Case("d1", draw=1))
    assert len({score.outcome.output_tokens_per_s for score in (logged, drawn, other)}) == 3
    # The same requests arrive, whatever policy is scored.
    assert logged.block_weight == drawn.block_weight
    lmetric = replace(default(), family="lmetric")
    generated = {
        name: score.outcome.output_tokens_per_s * score.outcome.simulated_s
        for name, score in (("a", drawn), ("b", evaluate(lmetric, Case("d1", draw=1))))
    }
    assert generated["a"] == pytest.approx(generated["b"])


def test_a_search_on_the_twin_gains_or_stays(tmp_path: Path) -> None:
    factory = prepared(tmp_path)
    frozen = frozen_knobs(factory.cluster, LAWS, world.GOAL, [])
    space = space_around(default(), frozen, LAWS.length.levels)
    cases = [Case(day, load) for day in ("d1", "d2") for load in (1.0, 1.15)]
    with WorkerPool(factory, 1) as pool:
        found = search(
            space, racer(pool, space, cases), seed=1, budget=Budget(trials=16, batch=4, startup=4, patience=9)
        )
    assert found.best.value >= found.trials[0].value
    assert len(found.best.slices) == 8
