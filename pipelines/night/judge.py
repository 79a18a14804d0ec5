"""Search and evidence of a night: the twin's own fidelity, candidates on train days, the verdict on days held out."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from features.lake import Lake
from models.splits import Window
from pipelines.night.contest import SEARCHED_FAMILY, Contest, with_risk
from pipelines.night.fit import Fitted, residual_noise
from pipelines.night.inputs import Inputs
from pipelines.night.policy import in_force_within
from pipelines.night.workloads import window_traffic
from pipelines.settings import Pool
from policies.evidence.drills import plan_drills
from policies.evidence.evidence import Evidence, Plan, gather
from policies.evidence.fidelity import LoggedReplay, forced_placement_gate
from policies.evidence.gates import POLICY_REPLAY, Gate, not_run
from policies.evidence.policy_replay import policy_replay_gate, replay_seeds
from policies.policy import Policy
from policies.search.candidates import DEFAULT, INCUMBENT, Candidates, find_candidates, train_cases
from policies.search.cases import Case, CaseScore
from policies.search.detail import Detail
from policies.search.families import choose_winner, family_spaces
from policies.search.plan import planned_trials
from policies.search.replay import ReplayFactory, save_workloads
from policies.search.workers import Task, WorkerPool
from policies.store import PolicyStore
from policies.twin.replay import replay
from policies.twin.workload import Workload

Progress: TypeAlias = Callable[[str, int, int], None]
"""(stage, done, of how many; 0 = unknown)."""
_KEPT_S = 86_400
_FIXED_ARMS = 4


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


def fidelity(
    lake: Lake, store: PolicyStore, pool: Pool, inputs: Inputs, fitted: Fitted, incumbent: Policy
) -> tuple[Gate, ...]:
    """Gates 1a and 1b on the validation windows: whether the twin can be believed."""
    return forced_placement(lake, pool, inputs, fitted, incumbent), policy_replay(lake, store, pool, inputs, fitted)


def forced_placement(lake: Lake, pool: Pool, inputs: Inputs, fitted: Fitted, incumbent: Policy) -> Gate:
    """Gate 1a. Requests whose pair the pool does not have are placed by the incumbent."""
    days = [
        _logged_replay(lake, pool, inputs, fitted, window, incumbent, forced=True) for window in inputs.split.validation
    ]
    names, gates = [c.name for c in pool.classes], pool.gates
    return forced_placement_gate(days, names, gates.fidelity, alpha=gates.alpha, seed=pool.search.seed)


def policy_replay(lake: Lake, store: PolicyStore, pool: Pool, inputs: Inputs, fitted: Fitted) -> Gate:
    """Gate 1b. Each window is replayed, several times, under the policy that was in force in it: the store's, else the
    declared incumbent, with tonight's estimators and risk tables as every arm has them.
    """
    windows, policies = inputs.split.validation, []
    for window in windows:
        held, reason = in_force_within(store, pool, window, _named(lake, pool, window))
        if held is None:
            return not_run(POLICY_REPLAY, reason)
        policies.append(with_risk(held.policy, fitted.estimators))
    days = [
        _logged_replay(lake, pool, inputs, fitted, window, policy, forced=False)
        for window, policy in zip(windows, policies, strict=True)
    ]
    families, names, gates = [policy.family for policy in policies], [c.name for c in pool.classes], pool.gates
    return policy_replay_gate(days, families, names, gates.fidelity, alpha=gates.alpha, seed=pool.search.seed)


def _logged_replay(
    lake: Lake, pool: Pool, inputs: Inputs, fitted: Fitted, window: Window, policy: Policy, *, forced: bool
) -> LoggedReplay:
    """Forced placement leaves little to chance: the log's own pairs are replayed once."""
    traffic = window_traffic(lake, pool, inputs, window, fitted.estimators.length, forced=forced)
    noise = residual_noise(fitted.estimators)
    seeds = replay_seeds(pool.search.seed, 1 if forced else pool.gates.fidelity.replays)
    replays = (
        replay(inputs.cluster, fitted.estimators, policy, traffic.workload, seed=seed, noise=noise) for seed in seeds
    )
    return LoggedReplay.of(traffic.workload, replays, traffic.logged)


def _named(lake: Lake, pool: Pool, window: Window) -> set[str]:
    """Policy versions that a window's requests name."""
    found = (
        lake.scan("requests", [window.day], pool.name)
        .filter(pl.col("arrived_at_us").is_between(window.start_us, window.end_us, closed="left"))
        .select(pl.col("policy_version").drop_nulls().unique())
        .collect()
    )
    return set(found["policy_version"].to_list())


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
    space, racks = match.space, len(inputs.cluster.racks)
    simple = family_spaces(_simple(pool), space.default, racks, space.levels, match.freedom)
    cases = _train_cases(pool, match)
    trials = planned_trials(space, simple, pool.search.budget)
    return (trials + _FIXED_ARMS + len(simple)) * len(cases)


def find(
    workers: WorkerPool,
    pool: Pool,
    inputs: Inputs,
    match: Contest,
    *,
    context: str,
    journals: Path | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Candidates:
    """Candidates on the train windows. The winner is of a family that the pool's router can run."""
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
    days = match.days
    plan = Plan(
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
    summary: dict[str, Any] = dict(candidates.summary)
    summary["reserve_blocks"] = match.reserve_blocks
    return gather(
        workers,
        candidates.arms,
        winner=candidates.winner,
        incumbent=INCUMBENT,
        default=DEFAULT,
        plan=plan,
        gates=gates,
        search=summary,
    )


def _train_cases(pool: Pool, match: Contest) -> list[Case]:
    """Times are drawn as residual noise in every replay, lengths at all loads but one."""
    return train_cases(match.days["train"], pool.search.loads, drawn=True)


def _simple(pool: Pool) -> list[str]:
    return [f for f in pool.families if f != SEARCHED_FAMILY]
