"""The evaluator that replays: workloads from a scratch folder, the fitted laws, one seed for every policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from features.errors import TwinError
from models.portable import Estimators
from policies.booked_output import booked_output, expected_output
from policies.objective import Goal, scale_load
from policies.policy import Policy
from policies.search_cases import Case, CaseScore, score_case
from policies.twin.cluster import Cluster
from policies.twin.outcomes import Noise
from policies.twin.replay import replay
from policies.twin.workload import Int32, Workload


def save_workloads(folder: Path, workloads: Mapping[str, Workload]) -> None:
    """Write each workload as `<name>.npz` for the workers; request ids are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, workload in workloads.items():
        np.savez(folder / f"{name}.npz", **{key: getattr(workload, key) for key in _ARRAYS})


def load_workload(folder: Path, name: str) -> Workload:
    """Read one workload back. Raises TwinError if the folder has none of that name."""
    path = folder / f"{name}.npz"
    if not path.exists():
        raise TwinError("a case names a workload of the scratch folder", value=name, place=str(folder))
    with np.load(path, allow_pickle=False) as arrays:
        return Workload(**{key: arrays[key] for key in _ARRAYS})


_ARRAYS = tuple(f.name for f in fields(Workload) if f.name != "request_ids")


@dataclass(frozen=True, slots=True)
class ReplayFactory:
    """What a worker needs to replay. `seed` is the same for every policy and case: common random numbers."""

    folder: Path
    cluster: Cluster
    estimators: Estimators
    goal: Goal
    seed: int
    noise: Noise | None = None

    def build(self) -> ReplayEvaluator:
        """Load every workload of the folder."""
        names = sorted(path.stem for path in self.folder.glob("*.npz"))
        return ReplayEvaluator(self, {name: load_workload(self.folder, name) for name in names})


class ReplayEvaluator:
    """Replays and scores; keeps scaled workloads and booked lengths, which many policies share."""

    def __init__(self, setup: ReplayFactory, workloads: Mapping[str, Workload]) -> None:
        self._setup = setup
        self._workloads = workloads
        self._scaled: dict[Case, Workload] = {}
        self._booked: dict[tuple[str, tuple[float, ...]], Int32] = {}
        self._expected: dict[str, Int32] = {}

    def __call__(self, policy: Policy, case: Case) -> CaseScore:
        """Replay `case` under `policy` with the fitted laws in the pool and in its routers."""
        setup = self._setup
        workload = self._workload(case)
        result = replay(
            setup.cluster,
            setup.estimators,
            policy,
            workload,
            seed=setup.seed,
            estimated_output=self._booked_output(policy, case.day, workload),
            expected_output=self._expected_output(policy, case.day, workload),
            noise=setup.noise,
        )
        return score_case(case, setup.cluster, workload, result, setup.goal)

    def _workload(self, case: Case) -> Workload:
        if case.day not in self._workloads:
            raise TwinError("a case names a workload of the scratch folder", value=case.day)
        if case not in self._scaled:
            self._scaled[case] = scale_load(self._workloads[case.day], case.load)
        return self._scaled[case]

    def _booked_output(self, policy: Policy, day: str, workload: Workload) -> Int32:
        levels = tuple(c.quantile for c in policy.classes)
        if (day, levels) not in self._booked:
            names = [c.name for c in policy.classes]
            self._booked[day, levels] = booked_output(self._setup.estimators.length, names, levels, workload)
        return self._booked[day, levels]

    def _expected_output(self, policy: Policy, day: str, workload: Workload) -> Int32:
        if day not in self._expected:
            names = [c.name for c in policy.classes]
            self._expected[day] = expected_output(self._setup.estimators.length, names, workload)
        return self._expected[day]
