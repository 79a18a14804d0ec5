"""Gate 1b: the declared router family, replayed freely on the logged requests, must give the log's own latencies.

Gate 1a holds the twin's times and caches against the log; this one also holds the decisions: what routers see, when
they see it, and how they choose. Where a pool is full two runs of it differ, with the same traffic and the same router;
so the log, one draw, is held against several replays.
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
    *,
    alpha: float = 0.025,
    seed: int = 1,
) -> Gate:
    """`against_log` over all requests that no log placed. `families`: of the policy in force on each day."""
    held = limits or FidelityLimits()
    gate = against_log(POLICY_REPLAY, days, classes, held, _everything, "logged times", alpha=alpha, seed=seed)
    return replace(gate, detail=f"{' and '.join(dict.fromkeys(families))}: {gate.detail}") if families else gate


def replay_seeds(seed: int, replays: int) -> tuple[int, ...]:
    """Seeds of a window's replays, the first `seed` itself. Those of two neighbouring seeds do not meet."""
    more = (np.random.SeedSequence([seed, number]).generate_state(1)[0] for number in range(1, replays))
    return (seed, *(int(found) for found in more))


def _everything(workload: Workload) -> Bool:
    return np.ones(workload.requests, np.bool_)
