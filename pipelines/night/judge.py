"""Search and evidence of a night: the twin's own fidelity, candidates on train days, the verdict on days held out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from features.lake import Lake
from models.portable import Estimators
from models.splits import SplitMode, Window
from pipelines.night.fit import Fitted, residual_noise
from pipelines.night.inputs import Inputs
from pipelines.night.reserve import safety_reserve
from pipelines.night.workloads import window_traffic
from pipelines.settings import Pool
from policies.booked_output import booked_output, expected_output
from policies.candidates import DEFAULT, INCUMBENT, Candidates, find_candidates, train_cases
from policies.evidence.evidence import Evidence, Plan, gather
from policies.evidence.fidelity import ForcedReplay, forced_placement_gate
from policies.evidence.gates import Gate
from policies.policy import Policy, Weights, default_policy
from policies.risk import risk_table
from policies.search_cases import CaseScore
from policies.search_families import choose_winner
from policies.search_identify import frozen_knobs
from policies.search_replay import ReplayFactory, save_workloads
from policies.search_space import Space, space_around
from policies.search_workers import Task, WorkerPool
from policies.twin.replay import replay
from policies.twin.workload import Workload

Progress: TypeAlias = Callable[[str, int, int], None]
"""(stage, done, of how many; 0 = unknown)."""
SEARCHED_FAMILY = "routecal"
PARTS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Contest:
    """What meets what. `space.default` is the default policy; `incumbent` what is in force for the night's day.

    `days`: part of the split -> names of its workloads. `frozen` knobs and the reserve stand in the evidence.
    """

    space: Space
    incumbent: Policy
    reserve_blocks: float
    days: Mapping[str, tuple[str, ...]]


class CountingPool(WorkerPool):
    """A worker pool that tells how many replays are done."""

    def __init__(self, factory: ReplayFactory, workers: int, tell: Callable[[int], None]) -> None:
        super().__init__(factory, workers)
        self._tell = tell
        self._done = 0

    def scores(self, tasks: Sequence[Task]) -> Iterator[CaseScore]:
        """The tasks' scores, in their order, as they come."""
        for score in super().scores(tasks):
            self._done += 1
            self._tell(self._done)
            yield score


def window_names(inputs: Inputs) -> Mapping[str, tuple[tuple[str, Window], ...]]:
    """Part of the split -> (name, window). A name is its day, with the part behind it where days are cut inside."""
    inside = inputs.split.mode is SplitMode.INSIDE_DAYS
    return {
        part: tuple((f"{w.day}.{part}" if inside else w.day.isoformat(), w) for w in getattr(inputs.split, part))
        for part in PARTS
    }


def fidelity(lake: Lake, pool: Pool, inputs: Inputs, fitted: Fitted, incumbent: Policy) -> Gate:
    """Gate 1a on the validation windows. Requests whose pair the pool does not have are placed by the incumbent."""
    names = [c.name for c in pool.classes]
    lengths = fitted.estimators.length
    days = []
    for window in inputs.split.validation:
        traffic = window_traffic(lake, pool, inputs, window, lengths, forced=True)
        result = replay(
            inputs.cluster,
            fitted.estimators,
            incumbent,
            traffic.workload,
            seed=pool.search.seed,
            estimated_output=booked_output(lengths, names, [c.quantile for c in pool.classes], traffic.workload),
            expected_output=expected_output(lengths, names, traffic.workload),
            noise=residual_noise(fitted.estimators),
        )
        days.append(ForcedReplay(traffic.workload, result, traffic.logged))
    return forced_placement_gate(days, names, pool.gates.fidelity)


def contest(
    lake: Lake, pool: Pool, inputs: Inputs, fitted: Fitted, workloads: Mapping[str, Workload], incumbent: Policy
) -> Contest:
    """The default policy of the pool, what the search may move around it, and the incumbent.

    A class without a reserve in the settings gets the learned one. Without block hashes the prefix weight is 0: no
    claim is made about prefixes.
    """
    reserve = safety_reserve(lake, pool, inputs, fitted.estimators.length)
    family = SEARCHED_FAMILY if SEARCHED_FAMILY in pool.families else pool.families[0]
    classes = [replace(c, reserve_blocks=c.reserve_blocks or reserve) for c in pool.classes]
    default = default_policy(classes, risk=fitted.estimators.risk, family=family)
    frozen = frozen_knobs(inputs.cluster, fitted.estimators, pool.goal, list(workloads.values()))
    if not inputs.capability.reaches("hashes"):
        default = _without_prefix(default)
        frozen["PrefixBenefit"] = "the logs do not carry prompt blocks"
    if family != SEARCHED_FAMILY:
        space = space_around(default, frozen, fitted.estimators.length.levels)
        reason = f"the router cannot run the family {SEARCHED_FAMILY}, which alone has weights"
        space = replace(space, knobs=(), frozen=(*space.frozen, *((k.name, reason) for k in space.knobs)))
    else:
        space = space_around(default, frozen, fitted.estimators.length.levels)
    names = {part: tuple(name for name, _ in held) for part, held in window_names(inputs).items()}
    return Contest(space, _with_risk(incumbent, fitted.estimators), reserve, names)


@contextmanager
def replaying(
    pool: Pool,
    inputs: Inputs,
    fitted: Fitted,
    workloads: Mapping[str, Workload],
    scratch: Path,
    tell: Callable[[int], None],
) -> Iterator[WorkerPool]:
    """Workers that replay the night's workloads by name, with the laws' residual noise. `scratch`: a folder."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        save_workloads(Path(folder), workloads)
        factory = ReplayFactory(
            Path(folder),
            inputs.cluster,
            fitted.estimators,
            pool.goal,
            pool.search.seed,
            residual_noise(fitted.estimators),
        )
        with CountingPool(factory, pool.search.workers, tell) as workers:
            yield workers


def all_workloads(lake: Lake, pool: Pool, inputs: Inputs, fitted: Fitted) -> dict[str, Workload]:
    """Every window of the split by name, as a policy will meet it."""
    return {
        name: window_traffic(lake, pool, inputs, window, fitted.estimators.length).workload
        for held in window_names(inputs).values()
        for name, window in held
    }


def find(
    workers: WorkerPool,
    pool: Pool,
    inputs: Inputs,
    match: Contest,
    *,
    context: str,
    journal: Path | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Candidates:
    """Candidates on the train windows. The winner is of a family that the pool's router can run."""
    found = find_candidates(
        workers,
        match.space,
        train_cases(match.days["train"], pool.search.loads),
        incumbent=match.incumbent,
        families=[f for f in pool.families if f != SEARCHED_FAMILY],
        racks=len(inputs.cluster.racks),
        seed=pool.search.seed,
        budget=pool.search.budget,
        context=context,
        journal=journal,
        progress=progress,
    )
    able = [a for a in found.arms if a.policy.family in pool.families]
    return replace(found, winner=choose_winner(able).name)


def judge(
    workers: WorkerPool, pool: Pool, inputs: Inputs, match: Contest, candidates: Candidates, gates: Sequence[Gate]
) -> Evidence:
    """The evidence of a night. This opens the test day."""
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


def _without_prefix(policy: Policy) -> Policy:
    def weights(old: Weights) -> Weights:
        return (*old[:6], 0.0)

    return replace(policy, classes=tuple(replace(c, weights=weights(c.weights)) for c in policy.classes))


def _with_risk(policy: Policy, estimators: Estimators) -> Policy:
    """The policy with tonight's risk tables: every arm is judged with the same estimators."""
    risk = estimators.risk
    return replace(policy, risk_ttft=risk_table(risk.ttft), risk_tpot=risk_table(risk.tpot))
