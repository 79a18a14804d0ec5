"""Gate 1a: the log's own placements, replayed, must give the log's own latencies.

It judges the twin's times and caches for any router, since no decision is replayed. The comparison of a replay with its
log is shared with gate 1b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from features.errors import TwinError
from policies.evidence.gates import FORCED_PLACEMENT, Gate, Status, not_run
from policies.objective import Bool, Float64, latency
from policies.twin.outcomes import Replay
from policies.twin.workload import Workload


@dataclass(frozen=True, slots=True)
class Logged:
    """What the log says of a workload's requests, in its order; shape (requests,), NaN = unknown or not completed."""

    ttft_s: Float64
    tpot_s: Float64
    cached_tokens: Float64


@dataclass(frozen=True, slots=True)
class FidelityLimits:
    """Largest accepted differences: fractions of the logged quantile, and points of the hit share as a fraction."""

    ttft_p50: float = 0.10
    ttft_p99: float = 0.20
    tpot_p50: float = 0.05
    tpot_p99: float = 0.10
    hit_share: float = 0.03
    min_requests: int = 500


@dataclass(frozen=True, slots=True)
class LoggedReplay:
    """One day: its workload, a replay of it, and the log."""

    workload: Workload
    replay: Replay
    logged: Logged


Compared: TypeAlias = Callable[[Workload], Bool]
"""Which requests of a workload are held against the log; shape (requests,)."""


def forced_placement_gate(
    days: Sequence[LoggedReplay], classes: Sequence[str], limits: FidelityLimits | None = None
) -> Gate:
    """`against_log` over the requests that were forced to their logged pairs."""
    return against_log(FORCED_PLACEMENT, days, classes, limits or FidelityLimits(), _forced, "logged pairs and times")


def against_log(
    name: str,
    days: Sequence[LoggedReplay],
    classes: Sequence[str],
    limits: FidelityLimits,
    compared: Compared,
    needs: str,
) -> Gate:
    """The gate `name`: all days together, class by class, over scored requests that `compared` names and that completed
    in both.

    `value` is the worst difference over its limit (1 = on it). Classes under `min_requests` are not judged; if that is
    all of them the gate is not run (`needs`: what their requests lack). A hit share is judged where the log knows
    cached tokens.
    """
    worst, worst_name, judged = 0.0, "", 0
    numbers: dict[str, float] = {}
    rows = [_rows(day, compared(day.workload)) for day in days]
    for index, label in enumerate(classes):
        mine = [tuple(column[row[0] == index] for column in row) for row in rows]
        if not mine:
            continue
        _, prompt, ttft, tpot, hit, ttft_log, tpot_log, hit_log = (np.concatenate(c) for c in zip(*mine, strict=True))
        numbers[f"{label}.requests"] = float(len(ttft))
        if len(ttft) < limits.min_requests:
            continue
        judged += 1
        found = {
            "ttft_p50": (_relative(ttft, ttft_log, 0.5), limits.ttft_p50),
            "ttft_p99": (_relative(ttft, ttft_log, 0.99), limits.ttft_p99),
            "tpot_p50": (_relative(tpot, tpot_log, 0.5), limits.tpot_p50),
            "tpot_p99": (_relative(tpot, tpot_log, 0.99), limits.tpot_p99),
        }
        known = ~np.isnan(hit_log)
        if known.any():
            share = float((hit[known] - hit_log[known]).sum() / prompt[known].sum())
            found["hit_share"] = (share, limits.hit_share)
        for key, (value, limit) in found.items():
            numbers[f"{label}.{key}"] = value
            if abs(value) / limit > worst:
                worst, worst_name = (
                    abs(value) / limit,
                    f"{key} of class {label} is off by {value:+.1%}, limit {limit:.0%}",
                )
    if judged == 0:
        return not_run(name, f"no class has {limits.min_requests} requests with {needs}")
    status: Status = "fail" if worst > 1.0 else "pass"
    detail = f"worst of {judged} classes: {worst_name}" if worst_name else f"{judged} classes agree exactly"
    return Gate(name, status, detail, value=worst, threshold=1.0, numbers=numbers)


def _forced(workload: Workload) -> Bool:
    return (workload.forced_prefill >= 0) & (workload.forced_decode >= 0)


def _rows(day: LoggedReplay, compared: Bool) -> tuple[npt.NDArray[np.float64], ...]:
    """Class, prompt tokens, then TTFT, TPOT, cached tokens replayed and logged, of the requests that compare."""
    workload, logged = day.workload, day.logged
    if not len(logged.ttft_s) == len(logged.tpot_s) == len(logged.cached_tokens) == workload.requests:
        raise TwinError("a log has one row a request of its workload", value=(workload.requests, len(logged.ttft_s)))
    times = latency(workload, day.replay)
    use = workload.scored & compared & ~np.isnan(times.ttft_s) & ~np.isnan(logged.ttft_s) & ~np.isnan(logged.tpot_s)
    columns = (
        workload.class_index.astype(np.float64),
        workload.prompt_tokens.astype(np.float64),
        times.ttft_s,
        times.tpot_s,
        day.replay.cached_tokens.astype(np.float64),
        logged.ttft_s,
        logged.tpot_s,
        logged.cached_tokens,
    )
    return tuple(column[use] for column in columns)


def _relative(replayed: Float64, logged: Float64, level: float) -> float:
    """Difference of a quantile as a fraction of the logged one."""
    there = float(np.quantile(logged, level))
    here = float(np.quantile(replayed, level))
    return (here - there) / there if there > 0 else float(here > 0)
