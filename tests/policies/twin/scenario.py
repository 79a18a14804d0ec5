"""What a scenario is: the arguments of a replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.portable.estimators import Estimators
from policies.policy import Policy
from policies.twin.cluster import Cluster
from policies.twin.outcomes import Noise
from policies.twin.workload import Workload


@dataclass(frozen=True)
class Scenario:
    """Arguments of a replay."""

    cluster: Cluster
    laws: Estimators
    decision_laws: Estimators | None
    policy: Policy
    workload: Workload
    seed: int
    estimated_output: np.ndarray | None
    expected_output: np.ndarray | None
    noise: Noise | None
