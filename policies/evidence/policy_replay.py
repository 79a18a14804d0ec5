"""Gate 1b: the declared router family, replayed freely on the logged requests, must give the log's own latencies.

Gate 1a holds the twin's times and caches against the log; this one also holds the decisions: what routers see, when
they see it, and how they choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from policies.evidence.fidelity import FidelityLimits, LoggedReplay, against_log
from policies.evidence.gates import POLICY_REPLAY, Gate
from policies.objective import Bool
from policies.twin.workload import Workload


def policy_replay_gate(
    days: Sequence[LoggedReplay],
    families: Sequence[str],
    classes: Sequence[str],
    limits: FidelityLimits | None = None,
) -> Gate:
    """`against_log` over all requests that no log placed. `families`: of the policy in force on each day."""
    gate = against_log(POLICY_REPLAY, days, classes, limits or FidelityLimits(), _everything, "logged times")
    return replace(gate, detail=f"{' and '.join(dict.fromkeys(families))}: {gate.detail}") if families else gate


def _everything(workload: Workload) -> Bool:
    return np.ones(workload.requests, np.bool_)
