"""The evaluator that replays: workloads from a scratch folder, the fitted laws, one seed for every policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from features.errors import TwinError
from models.portable.estimators import Estimators
from policies import store_workloads
from policies.evidence.drills import drilled
from policies.lengths import LengthRows, length_rows
from policies.objective import Goal
from policies.policy import Policy
from policies.search.cases import Case, CaseScore, score_case
from policies.search.detail import NOTHING, Detail, detail_of, watched
from policies.search.drawn import with_drawn_lengths
from policies.twin.cluster import Cluster
from policies.twin.engine.arena import Arena
from policies.twin.outcomes import Noise, Replay
from policies.twin.replay import Recorded, Recording, replay_recorded
from policies.twin.transforms import scale_load
from policies.twin.workload import Workload


def save_workloads(folder: Path, workloads: Mapping[str, Workload]) -> None:
    """Write each workload into a folder of its name for the workers; request ids are left out."""
    for name, workload in workloads.items():
        store_workloads.save_workload(folder / name, workload)


def load_workload(folder: Path, name: str) -> Workload:
    """Read one workload back; workers share its pages. TwinError if the folder has none of that name."""
    workload = store_workloads.load_workload(folder / name)
    if workload is None:
        raise TwinError("a case names a workload of the scratch folder", value=name, place=str(folder))
    return workload


@dataclass(frozen=True, slots=True)
class ReplayFactory:
    """What a worker needs to replay. `seed` is the same for every policy and case: common random numbers.

    `refits`: laws with their noise that a case may name instead of `estimators` with `noise`.
    """

    folder: Path
    cluster: Cluster
    estimators: Estimators
    goal: Goal
    seed: int
    noise: Noise | None = None
    refits: tuple[tuple[Estimators, Noise | None], ...] = ()

    def laws(self, refit: int) -> tuple[Estimators, Noise | None]:
        """Laws and noise of a case. TwinError for a refit that is not there."""
        if not 0 <= refit <= len(self.refits):
            raise TwinError("a case names a refit of the estimators", value=refit, hint=f"0 to {len(self.refits)}")
        return self.refits[refit - 1] if refit else (self.estimators, self.noise)

    def build(self) -> ReplayEvaluator:
        """Load every workload of the folder."""
        names = sorted(path.name for path in self.folder.iterdir() if not path.name.startswith("."))
        return ReplayEvaluator(self, {name: load_workload(self.folder, name) for name in names})


class ReplayEvaluator:
    """Replays and scores; keeps what cases make of workloads, and lowered length laws, which many policies share."""

    def __init__(self, setup: ReplayFactory, workloads: Mapping[str, Workload]) -> None:
        self._setup = setup
        self._workloads = workloads
        self._prepared: dict[Case, tuple[Cluster, Workload]] = {}
        self._lengths: dict[tuple[str, int, tuple[str, ...]], LengthRows] = {}
        self._arena = Arena()

    def __call__(self, policy: Policy, case: Case) -> CaseScore:
        """Replay `case` under `policy` with the case's laws in the pool and in its routers."""
        result, _ = self._replayed(policy, case, NOTHING)
        return score_case(case, *self._pool_and_traffic(case), result, self._setup.goal)

    def detail(self, policy: Policy, case: Case) -> Detail:
        """The same replay, recorded."""
        cluster, workload = self._pool_and_traffic(case)
        recording = watched(cluster, workload)
        result, recorded = self._replayed(policy, case, recording)
        return detail_of(case, cluster, workload, self._setup.goal, policy, recording, result, recorded)

    def _replayed(self, policy: Policy, case: Case, recording: Recording) -> tuple[Replay, Recorded]:
        setup = self._setup
        estimators, noise = setup.laws(case.refit)
        cluster, workload = self._pool_and_traffic(case)
        return replay_recorded(
            cluster,
            estimators,
            policy,
            workload,
            seed=setup.seed,
            recording=recording,
            lengths=self._length_rows(policy, case, estimators, workload),
            noise=noise,
            arena=self._arena,
        )

    def _pool_and_traffic(self, case: Case) -> tuple[Cluster, Workload]:
        if case.day not in self._workloads:
            raise TwinError("a case names a workload of the scratch folder", value=case.day)
        traffic = replace(case, refit=0)
        if traffic not in self._prepared:
            whole = self._setup.cluster, scale_load(self._answered(case), case.load)
            self._prepared[traffic] = drilled(case.drill, *whole) if case.drill else whole
        return self._prepared[traffic]

    def _answered(self, case: Case) -> Workload:
        """The case's day, with the lengths of its draw."""
        workload = self._workloads[case.day]
        if not case.draw:
            return workload
        names = [c.name for c in self._setup.goal.classes]
        rows = length_rows(self._setup.estimators.length, names, workload)
        return with_drawn_lengths(workload, rows, seed=self._setup.seed, draw=case.draw)

    def _length_rows(self, policy: Policy, case: Case, estimators: Estimators, workload: Workload) -> LengthRows:
        key = (case.day, case.refit, tuple(c.name for c in policy.classes))
        if key not in self._lengths:
            # Refits come one after the other: the rows of earlier ones would only take memory.
            self._lengths = {known: rows for known, rows in self._lengths.items() if known[1] in (0, case.refit)}
            self._lengths[key] = length_rows(estimators.length, key[2], workload)
        return self._lengths[key]
