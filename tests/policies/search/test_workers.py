"""Workers, families and the choice of a winner, on the stub evaluator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from features.errors import PolicyError
from policies.policy import DECODE_MOMENTS, ClassPolicy, Policy, default_policy
from policies.search.cases import Case, search_score
from policies.search.families import Arm, choose_winner, family_spaces, variants
from policies.search.race import racer
from policies.search.search import Budget, SearchResult, search
from policies.search.space import NO_FREEDOM, Freedom, Space, space_around
from policies.search.workers import WorkerPool
from tests.policies.stub import StubFactory

LEVELS = (0.5, 0.8, 0.9)
CASES = [Case(day, load) for day in ("d1", "d2") for load in (1.0, 1.15)]


def default() -> Policy:
    return default_policy((ClassPolicy("chat", reserve_blocks=10.0),))


def space() -> Space:
    return space_around(default(), {}, LEVELS)


def run(workers: int) -> SearchResult:
    with WorkerPool(StubFactory(), workers) as pool:
        return search(
            space(),
            racer(pool, space(), CASES),
            seed=5,
            budget=Budget(trials=24, batch=8, startup=8, patience=9),
        )


def test_one_and_two_workers_find_the_same() -> None:
    assert run(1) == run(2)


def test_scores_come_in_the_order_of_the_tasks() -> None:
    with WorkerPool(StubFactory(), 2) as pool:
        scores = list(pool.scores([(default(), case) for case in CASES]))
    assert [s.case for s in scores] == CASES


def test_a_pool_works_inside_its_block_only() -> None:
    with pytest.raises(PolicyError, match="with"):
        WorkerPool(StubFactory(), 1).scores([])


ENDLESS = """
from policies.search.cases import Case
from policies.search.workers import WorkerPool
from tests.policies.search.test_workers import SleepyFactory, default

if __name__ == "__main__":
    with WorkerPool(SleepyFactory(), 2) as pool:
        list(pool.scores([(default(), Case("d1"))] * 2))
"""


class SleepyFactory:
    def build(self) -> StubFactory:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        time.sleep(60)
        return StubFactory()


def test_workers_do_not_outlive_a_killed_coordinator(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)}
    ) as coordinator:
        assert coordinator.stdout is not None
        assert coordinator.stdout.readline() == b"ready\n"
        workers = psutil.Process(coordinator.pid).children(recursive=True)
        coordinator.send_signal(signal.SIGKILL)
        coordinator.wait()
        assert workers
        _, alive = psutil.wait_procs(workers, timeout=20)
        assert not alive


def test_slices_are_per_day_and_piece_and_loads_are_averaged() -> None:
    scores = [StubFactory()(default(), case) for case in CASES]
    found = search_score(scores)
    assert len(found.slices) == 8
    assert found.slices[0] == pytest.approx((scores[0].slices[0] + scores[1].slices[0]) / 2)
    assert found.value == pytest.approx(sum(s.soft for s in scores) / 4)


def test_families_have_their_rack_variants_and_their_knobs() -> None:
    assert list(variants("round_robin", default(), 2)) == ["round_robin"]
    assert list(variants("lmetric", default(), 1)) == ["lmetric"]
    found = variants("lmetric", default(), 2)
    assert list(found) == ["lmetric", "lmetric/prefill_first", "lmetric/decode_first"]
    assert found["lmetric"].classes == default().classes

    def knobs(family: str, freedom: Freedom = NO_FREEDOM, base: Policy | None = None) -> list[str]:
        space = family_spaces((family,), base or default(), 1, LEVELS, freedom)[family]
        return [k.name for k in space.knobs]

    assert knobs("lmetric") == ["quantile_step", "reserve_multiplier"]
    assert knobs("lowest_utilisation") == []
    assert knobs("lmetric", base=default_policy((ClassPolicy("chat"),))) == ["quantile_step"]
    free = Freedom(moments=DECODE_MOMENTS, prefill=8, decode=8, sampled=True, lease_s=60.0)
    assert knobs("lowest_utilisation", free) == ["decode_moment"]
    assert "decode_moment" not in knobs("dynamo_cost", free)  # another make's router does it when it does


def _arm(name: str, slices: tuple[float, ...]) -> Arm:
    return Arm(name, default(), sum(slices) / len(slices), slices, ())


def test_a_complicated_policy_must_have_shown_its_lead() -> None:
    simple = _arm("lmetric", (0.90, 0.80, 0.92, 0.82))
    lucky = _arm("searched", (0.93, 0.78, 0.95, 0.80))
    better = _arm("searched", (0.93, 0.83, 0.95, 0.85))
    assert choose_winner([simple, lucky]).name == "lmetric"
    assert choose_winner([simple, better]).name == "searched"
