"""The evaluator that replays: workloads from a scratch folder, the fitted laws, one seed for every policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from features.errors import TwinError
from models.portable.estimators import Estimators
from policies.lengths import LengthRows, length_rows
from policies.objective import Goal, scale_load
from policies.policy import Policy
from policies.search_cases import Case, CaseScore, score_case
from policies.twin.cluster import Cluster
from policies.twin.outcomes import Noise
from policies.twin.replay import replay
from policies.twin.workload import Arrivals, Workload


def save_workloads(folder: Path, workloads: Mapping[str, Workload]) -> None:
    """Write each workload as `<name>.npz` for the workers; request ids are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, workload in workloads.items():
        held = (
            {} if workload.arrivals is None else {f.name: getattr(workload.arrivals, f.name) for f in fields(Arrivals)}
        )
        np.savez(folder / f"{name}.npz", **{key: getattr(workload, key) for key in _ARRAYS}, **held)


def load_workload(folder: Path, name: str) -> Workload:
    """Read one workload back. Raises TwinError if the folder has none of that name."""
    path = folder / f"{name}.npz"
    if not path.exists():
        raise TwinError("a case names a workload of the scratch folder", value=name, place=str(folder))
    with np.load(path, allow_pickle=False) as arrays:
        names = [f.name for f in fields(Arrivals)]
        arrivals = Arrivals(**{key: arrays[key] for key in names}) if names[0] in arrays else None
        return Workload(**{key: arrays[key] for key in _ARRAYS}, arrivals=arrivals)


_ARRAYS = tuple(f.name for f in fields(Workload) if f.name not in ("request_ids", "arrivals"))


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
    """Replays and scores; keeps scaled workloads and lowered length laws, which many policies share."""

    def __init__(self, setup: ReplayFactory, workloads: Mapping[str, Workload]) -> None:
        self._setup = setup
        self._workloads = workloads
        self._scaled: dict[Case, Workload] = {}
        self._lengths: dict[tuple[str, tuple[str, ...]], LengthRows] = {}

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
            lengths=self._length_rows(policy, case.day, workload),
            noise=setup.noise,
        )
        return score_case(case, setup.cluster, workload, result, setup.goal)

    def _workload(self, case: Case) -> Workload:
        if case.day not in self._workloads:
            raise TwinError("a case names a workload of the scratch folder", value=case.day)
        if case not in self._scaled:
            self._scaled[case] = scale_load(self._workloads[case.day], case.load)
        return self._scaled[case]

    def _length_rows(self, policy: Policy, day: str, workload: Workload) -> LengthRows:
        names = tuple(c.name for c in policy.classes)
        if (day, names) not in self._lengths:
            self._lengths[day, names] = length_rows(self._setup.estimators.length, names, workload)
        return self._lengths[day, names]
