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
from policies.policy import ClassPolicy, Policy, default_policy
from policies.search import Budget, SearchResult, search
from policies.search_cases import Case, search_scores
from policies.search_families import Arm, best_variants, choose_winner, variants
from policies.search_space import Space, space_around
from policies.search_workers import WorkerPool, point_scorer
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
            point_scorer(pool, space(), CASES),
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
from policies.search_cases import Case
from policies.search_workers import WorkerPool
from tests.policies.test_search_workers import SleepyFactory, default

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
    root = Path(__file__).parents[2]
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
    value, slices = search_scores(scores)
    assert len(slices) == 8
    assert slices[0] == pytest.approx((scores[0].slices[0] + scores[1].slices[0]) / 2)
    assert value == pytest.approx(sum(s.soft for s in scores) / 4)


def test_variants_give_every_family_its_knobs() -> None:
    assert list(variants("round_robin", default(), 2, LEVELS)) == ["round_robin"]
    assert list(variants("lmetric", default(), 1, LEVELS)) == ["lmetric"]
    grid = variants("lmetric", default(), 2, LEVELS)
    assert list(grid) == ["lmetric", "lmetric/prefill_first", "lmetric/decode_first"]
    assert {len(points) for points in grid.values()} == {6}
    assert len(variants("lowest_utilisation", default(), 2, LEVELS)["lowest_utilisation"]) == 1
    assert grid["lmetric"][0].classes == default().classes


def test_without_reserves_the_multiplier_is_no_knob() -> None:
    bare = default_policy((ClassPolicy("chat"),))
    assert len(variants("lmetric", bare, 1, LEVELS)["lmetric"]) == 2


def test_the_best_of_a_grid_stands_for_its_arm() -> None:
    with WorkerPool(StubFactory(), 1) as pool:
        arms = best_variants(pool, ("lmetric", "round_robin"), default(), 2, LEVELS, CASES)
    assert [a.name for a in arms] == ["lmetric", "lmetric/prefill_first", "lmetric/decode_first", "round_robin"]
    assert arms[2].value == pytest.approx(arms[0].value + 0.01, abs=1e-3)


def _arm(name: str, slices: tuple[float, ...]) -> Arm:
    return Arm(name, default(), sum(slices) / len(slices), slices, ())


def test_a_complicated_policy_must_have_shown_its_lead() -> None:
    simple = _arm("lmetric", (0.90, 0.80, 0.92, 0.82))
    lucky = _arm("searched", (0.93, 0.78, 0.95, 0.80))
    better = _arm("searched", (0.93, 0.83, 0.95, 0.85))
    assert choose_winner([simple, lucky]).name == "lmetric"
    assert choose_winner([simple, better]).name == "searched"
