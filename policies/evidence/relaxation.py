"""How long a pool's queues remember: the length that bootstrap blocks are made of."""

from __future__ import annotations

import numpy as np

from policies.twin.outcomes import NOT_YET, Replay
from policies.twin.workload import Workload

STEP_NS = 1_000_000_000


def relaxation_s(workload: Workload, replay: Replay) -> float:
    """Lag in seconds at which the autocorrelation of the number of waiting requests falls below 1/e.

    Waiting = arrived and without its first token, counted every second over the scored arrivals, less its straight
    trend. 0 where the queue never varies; at most a quarter of the window, where the window is too short to tell more.
    """
    scored = np.flatnonzero(workload.scored)
    if len(scored) == 0:
        return 0.0
    came = replay.arrived_ns
    start, stop = came[scored].min(), came[scored].max()
    ticks = np.arange(start, stop, STEP_NS)
    if len(ticks) < 8:
        return 0.0
    first = replay.first_token_ns
    left = np.sort(np.where(first == NOT_YET, came, first))
    arrived = np.searchsorted(np.sort(came), ticks, side="right")
    waiting = (arrived - np.searchsorted(left, ticks, side="right")).astype(np.float64)
    at = np.arange(len(ticks), dtype=np.float64)
    at -= at.mean()
    centred = waiting - waiting.mean()
    centred -= at * float(at @ centred) / float(at @ at)
    power = float(centred @ centred)
    if power < 1e-9 * len(ticks):
        return 0.0
    limit = len(ticks) // 4
    before = 1.0
    for lag in range(1, limit + 1):
        now = float(centred[lag:] @ centred[:-lag]) / power
        if now < np.exp(-1.0):
            return lag - 1 + (before - float(np.exp(-1.0))) / (before - now)
        before = now
    return float(limit)
