"""Search and evidence of a night: candidates on train days, the verdict on days held out."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.night.contest import SEARCHED_FAMILY, Contest
from pipelines.night.fit import Fitted, residual_noise
from pipelines.night.inputs import Inputs
from pipelines.settings import Pool
from policies.evidence.drills import plan_drills
from policies.evidence.evidence import Evidence, Plan, gather, gather_replays
from policies.evidence.gates import Gate
from policies.search.candidates import DEFAULT, INCUMBENT, Candidates, find_candidates, train_cases
from policies.search.cases import Case, CaseScore
from policies.search.detail import Detail
from policies.search.families import choose_winner, family_spaces
from policies.search.plan import planned_trials
from policies.search.replay import ReplayFactory, save_workloads
from policies.search.space import Space
from policies.search.workers import Task, WorkerPool
from policies.twin.workload import Workload

_KEPT_S = 86_400
_SEARCHED_ARMS = 3
"""The default, shared weights, weights of classes."""


class CountingPool(WorkerPool):
    """A worker pool that tells of every replay that is done."""

    def __init__(self, factory: ReplayFactory, workers: int, tell: Callable[[], None]) -> None:
        super().__init__(factory, workers)
        self._tell = tell

    def scores(self, tasks: Iterable[Task]) -> Iterator[CaseScore]:
        """The tasks' scores, in their order, as they come."""
        for score in super().scores(tasks):
            self._tell()
            yield score

    def details(self, tasks: Sequence[Task]) -> Iterator[Detail]:
        """The tasks' replays looked at closely, in their order, as they come."""
        for detail in super().details(tasks):
            self._tell()
            yield detail


@contextmanager
def replaying(
    pool: Pool,
    inputs: Inputs,
    fitted: Fitted,
    workloads: Mapping[str, Workload],
    scratch: Path,
    tell: Callable[[], None],
) -> Iterator[WorkerPool]:
    """Workers that replay the night's workloads by name, with the laws or a refit of them and their residual noise.
    `tell`: after each replay.

    `scratch`: folder for the workloads. What a killed night left there goes when it is a day old.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    for left in scratch.iterdir():
        if left.stat().st_mtime < time.time() - _KEPT_S:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        save_workloads(Path(folder), workloads)
        factory = ReplayFactory(
            Path(folder),
            inputs.cluster,
            fitted.estimators,
            pool.goal,
            pool.search.seed,
            residual_noise(fitted.estimators),
            refits=tuple((again, residual_noise(again)) for again in fitted.refits),
        )
        with CountingPool(factory, pool.search.workers, tell) as workers:
            yield workers


def search_replays(pool: Pool, inputs: Inputs, match: Contest) -> int:
    """Replays that `find` makes at most."""
    trials = planned_trials(match.space, _simple_spaces(pool, inputs, match), pool.search.budget)
    return len(_train_cases(pool, match)) + _replays_after(trials, pool, inputs, match)


def _replays_after(trials: int, pool: Pool, inputs: Inputs, match: Contest) -> int:
    """Replays of so many trials, and of the arms after them; the incumbent's come before all."""
    arms = _SEARCHED_ARMS + len(_simple_spaces(pool, inputs, match))
    return (trials + arms) * len(_train_cases(pool, match))


def find(
    workers: WorkerPool,
    pool: Pool,
    inputs: Inputs,
    match: Contest,
    *,
    context: str,
    journals: Path | None = None,
    reached: Callable[[int, float], None] = lambda _left, _best: None,
) -> Candidates:
    """Candidates on the train windows. The winner is of a family that the pool's router can run.

    `reached`: after each batch, with the replays that are left at most and the best softened goodput so far.
    """

    def progress(done: int, at_most: int, best: float) -> None:
        reached(_replays_after(at_most - done, pool, inputs, match), best)

    found = find_candidates(
        workers,
        match.space,
        _train_cases(pool, match),
        incumbent=match.incumbent,
        families=_simple(pool),
        racks=len(inputs.cluster.racks),
        seed=pool.search.seed,
        budget=pool.search.budget,
        context=context,
        freedom=match.freedom,
        journals=journals,
        progress=progress,
    )
    able = [a for a in found.arms if a.policy.family in pool.families]
    return replace(found, winner=choose_winner(able, found.limits).name)


def judge(
    workers: WorkerPool,
    pool: Pool,
    inputs: Inputs,
    match: Contest,
    candidates: Candidates,
    gates: Sequence[Gate],
    *,
    refits: int = 0,
) -> Evidence:
    """The evidence of a night. `refits`: of the estimators, which the workers hold. This opens the test day."""
    summary: dict[str, Any] = dict(candidates.summary)
    summary["reserve_blocks"] = match.reserve_blocks
    return gather(
        workers,
        candidates.arms,
        winner=candidates.winner,
        incumbent=INCUMBENT,
        default=DEFAULT,
        plan=_plan(pool, inputs, match, refits),
        gates=gates,
        search=summary,
    )


def evidence_replays(pool: Pool, inputs: Inputs, match: Contest, candidates: Candidates, *, refits: int = 0) -> int:
    """Replays that `judge` makes at most."""
    return gather_replays(
        candidates.arms,
        winner=candidates.winner,
        incumbent=INCUMBENT,
        default=DEFAULT,
        plan=_plan(pool, inputs, match, refits),
    )


def _plan(pool: Pool, inputs: Inputs, match: Contest, refits: int) -> Plan:
    days = match.days
    return Plan(
        train_days=days["train"],
        validation_days=days["validation"],
        test_days=days["test"],
        seed=pool.search.seed,
        history_days=len(inputs.traffic),
        alpha=pool.gates.alpha,
        margin=pool.gates.margin,
        resamples=pool.gates.resamples,
        waivers=pool.gates.waivers,
        sweep=pool.gates.sweep,
        explained=True,
        drills=plan_drills(inputs.cluster, pool.gates.drill_margin),
        refits=refits,
    )


def _simple_spaces(pool: Pool, inputs: Inputs, match: Contest) -> Mapping[str, Space]:
    space = match.space
    return family_spaces(_simple(pool), space.default, len(inputs.cluster.racks), space.levels, match.freedom)


def _train_cases(pool: Pool, match: Contest) -> list[Case]:
    """Times are drawn as residual noise in every replay, lengths at all loads but one."""
    return train_cases(match.days["train"], pool.search.loads, drawn=True)


def _simple(pool: Pool) -> list[str]:
    return [f for f in pool.families if f != SEARCHED_FAMILY]
