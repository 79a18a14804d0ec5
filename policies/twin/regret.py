"""Regret of recorded decisions against what hindsight would have chosen: docs/evidence.md. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policies.policy import Policy
from policies.twin.outcomes import Replay
from policies.twin.replay import Recorded
from policies.twin.workload import Workload

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Regret:
    """One row a recorded request, in the recording's order; NaN and False where nothing was placed or could be.

    `bound_ttft_s`: the least TTFT over all pairs by the pool's true laws and its true state at the decision;
    `ttft_s`: that of the pair that was taken, less the bound. `missed`: some pair would have met both targets of the
    request's class and the one that was taken would not.
    """

    requests: Int64
    bound_ttft_s: Float64
    ttft_s: Float64
    missed: Bool

    def by_class(self, class_index: npt.NDArray[np.int32], classes: int) -> list[tuple[float, float]]:
        """Mean TTFT regret in seconds and the missed part of every class; NaN for a class without rows."""
        found = []
        for c in range(classes):
            mine = (class_index[self.requests] == c) & np.isfinite(self.ttft_s)
            rows = int(mine.sum())
            found.append(
                (float(self.ttft_s[mine].mean()), float(self.missed[mine].mean())) if rows else (np.nan, np.nan)
            )
        return found


def regret_of(
    recorded: Recorded, replay: Replay, policy: Policy, workload: Workload, requests: Sequence[int] | Int64
) -> Regret:
    """Regret of the decisions about `requests`, as they were given to the recording."""
    rows = np.asarray(requests, np.int64)
    ttft, tpot = recorded.decision_true_ttft_s, recorded.decision_true_tpot_s
    p, d = replay.prefill_node[rows], replay.decode_node[rows]
    placed = (p >= 0) & (d >= 0)
    at = np.arange(len(rows))
    bound = np.min(np.where(np.isnan(ttft), np.inf, ttft), axis=(1, 2), initial=np.inf)
    bound = np.where(np.isinf(bound), np.nan, bound)
    taken = np.where(placed, ttft[at, p, d], np.nan)
    targets_ttft = _targets([c.ttft_target_s for c in policy.classes])[workload.class_index[rows]]
    targets_tpot = _targets([c.tpot_target_s for c in policy.classes])[workload.class_index[rows]]
    met = (ttft <= targets_ttft[:, None, None]) & (tpot <= targets_tpot[:, None, None])
    missed = placed & np.isfinite(taken) & met.any(axis=(1, 2)) & ~met[at, p, d]
    return Regret(rows, bound, taken - bound, missed)


def _targets(values: list[float | None]) -> Float64:
    return np.array([np.inf if value is None else value for value in values])
