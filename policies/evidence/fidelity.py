"""Gate 1a: the log's own placements, replayed, must give the log's own latencies.

It judges the twin's times and caches for any router, since no decision is replayed. The comparison of replays with
their log is shared with gate 1b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from features.errors import TwinError
from policies.evidence.apart import Apart, Compared, differences
from policies.evidence.bootstrap import block_length_s
from policies.evidence.gates import FORCED_PLACEMENT, Gate, Status, not_run
from policies.evidence.relaxation import relaxation_s
from policies.objective import Bool, Float64, latency
from policies.twin.outcomes import Replay
from policies.twin.workload import Int64, Workload


@dataclass(frozen=True, slots=True)
class Logged:
    """What a log or a replay says of a workload's requests, in its order; shape (requests,), NaN = unknown or not
    completed.
    """

    ttft_s: Float64
    tpot_s: Float64
    cached_tokens: Float64


@dataclass(frozen=True, slots=True)
class FidelityLimits:
    """Largest accepted differences: fractions of the logged quantile, and points of the hit share as a fraction.

    `replays`: of the policy in force, each with a seed of its own.
    """

    ttft_p50: float = 0.10
    ttft_p99: float = 0.20
    tpot_p50: float = 0.05
    tpot_p99: float = 0.10
    hit_share: float = 0.03
    min_requests: int = 500
    replays: int = 5


@dataclass(frozen=True, slots=True)
class LoggedReplay:
    """One day: its workload, what each replay of it gave, and the log. `relaxation_s`: of the first replay's queue."""

    workload: Workload
    replays: tuple[Logged, ...]
    logged: Logged
    relaxation_s: float

    @classmethod
    def of(cls, workload: Workload, replays: Iterable[Replay], logged: Logged) -> LoggedReplay:
        """Of at least one replay; one is held whole at a time."""
        found: list[Logged] = []
        remembers_s = 0.0
        for replay in replays:
            times = latency(workload, replay)
            remembers_s = remembers_s if found else relaxation_s(workload, replay)
            found.append(Logged(times.ttft_s, times.tpot_s, replay.cached_tokens.astype(np.float64)))
        return cls(workload, tuple(found), logged, remembers_s)


Which: TypeAlias = Callable[[Workload], Bool]
"""Which requests of a workload are held against the log; shape (requests,)."""


def forced_placement_gate(
    days: Sequence[LoggedReplay],
    classes: Sequence[str],
    limits: FidelityLimits | None = None,
    *,
    alpha: float = 0.025,
    seed: int = 1,
) -> Gate:
    """`against_log` over the requests that were forced to their logged pairs."""
    needs = "logged pairs and times"
    return against_log(
        FORCED_PLACEMENT, days, classes, limits or FidelityLimits(), _forced, needs, alpha=alpha, seed=seed
    )


def against_log(
    name: str,
    days: Sequence[LoggedReplay],
    classes: Sequence[str],
    limits: FidelityLimits,
    which: Which,
    needs: str,
    *,
    alpha: float,
    seed: int,
) -> Gate:
    """The gate `name`: all days and replays together, class by class, over scored requests that `which` names and that
    completed in both.

    It passes where every difference is within its limit, and fails where one is beyond it with its whole interval
    (level 1 - 2·alpha; the seed draws it). Else it cannot tell: not run, "undecided", with all numbers. `value`: the
    worst difference over its limit, of those that fail it if any does; `interval`: the same of that one.

    Classes with fewer than `min_requests` of the log are not judged; if that is all of them the gate is not run
    (`needs`: what their requests lack). A hit share is judged where the log knows cached tokens.
    """
    block_s = block_length_s([day.relaxation_s for day in days])
    rows, labels = _rows(days, which, block_s)
    found: dict[tuple[str, str], Apart] = {}
    numbers = {"block_s": block_s, "replays": float(max((len(day.replays) for day in days), default=0))}
    for index, label in enumerate(classes):
        mine = rows.of(labels == index)
        requests = len(np.unique(mine.request))
        numbers[f"{label}.requests"] = float(requests)
        if requests >= limits.min_requests:
            numbers[f"{label}.blocks"] = float(len(np.unique(mine.block)))
            found |= {(label, key): each for key, each in differences(mine, alpha=alpha, seed=seed).items()}
    if not found:
        return not_run(name, f"no class has {limits.min_requests} requests with {needs}")
    for (label, key), each in found.items():
        numbers |= {f"{label}.{key}": each.value, f"{label}.{key}.low": each.low, f"{label}.{key}.high": each.high}
    status, worst = _judged(found, limits)
    value, interval = found[worst].over(getattr(limits, worst[1]))
    detail = _detail(status, worst, found[worst], limits, len({label for label, _ in found}))
    return Gate(name, status, detail, value=value, threshold=1.0, interval=interval, numbers=numbers)


def _judged(found: Mapping[tuple[str, str], Apart], limits: FidelityLimits) -> tuple[Status, tuple[str, str]]:
    """The gate's status, and the difference that it hangs on."""
    over = {at: each.over(getattr(limits, at[1])) for at, each in found.items()}
    failed = [at for at, (value, interval) in over.items() if value > 1.0 and interval[0] > 1.0]
    worst = max(failed or over, key=lambda at: over[at][0])
    if failed:
        return "fail", worst
    return ("not_run" if over[worst][0] > 1.0 else "pass"), worst


def _detail(status: Status, at: tuple[str, str], each: Apart, limits: FidelityLimits, judged: int) -> str:
    label, key = at
    if status == "pass" and each.value == 0.0:
        return f"{judged} classes agree exactly"
    off = f"{key} of class {label} is off by {each.value:+.1%}, limit {getattr(limits, key):.0%}"
    interval = f"interval [{each.low:+.1%}, {each.high:+.1%}]"
    if status == "not_run":
        return f"undecided: {off}, {interval} holds the limit"
    return f"worst of {judged} classes: {off}, {interval}"


def _forced(workload: Workload) -> Bool:
    return (workload.forced_prefill >= 0) & (workload.forced_decode >= 0)


def _rows(days: Sequence[LoggedReplay], which: Which, block_s: float) -> tuple[Compared, Int64]:
    """The requests that compare, day by day and replay by replay, and their classes."""
    columns: list[tuple[Float64 | Int64, ...]] = []
    requests = blocks = 0
    for day in days:
        workload, logged = day.workload, day.logged
        if not len(logged.ttft_s) == len(logged.tpot_s) == len(logged.cached_tokens) == workload.requests:
            raise TwinError(
                "a log has one row a request of its workload", value=(workload.requests, len(logged.ttft_s))
            )
        known = workload.scored & which(workload) & ~np.isnan(logged.ttft_s) & ~np.isnan(logged.tpot_s)
        block = blocks + block_of(workload, block_s)
        for number, replayed in enumerate(day.replays):
            use = np.flatnonzero(known & ~np.isnan(replayed.ttft_s))
            rows = (
                requests + use,
                block[use],
                np.full(len(use), number),
                workload.prompt_tokens[use].astype(np.float64),
                *(getattr(replayed, name)[use] for name in Logged.__slots__),
                *(getattr(logged, name)[use] for name in Logged.__slots__),
                workload.class_index[use].astype(np.int64),
            )
            columns.append(rows)
        requests += workload.requests
        blocks = int(block.max(initial=-1)) + 1
    if not columns:
        columns.append((*(np.zeros(0, np.int64),) * 3, *(np.zeros(0),) * 7, np.zeros(0, np.int64)))
    *whole, labels = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Compared(*whole), labels


def block_of(workload: Workload, block_s: float) -> Int64:
    """Block of every request's arrival, from the first scored one on, as the verdict's blocks are: a rest under half a
    block joins the one before it. Shape (requests,); requests before the first block are in it.
    """
    at = workload.arrival_ns
    scored = at[workload.scored]
    if not len(scored):
        return np.zeros(len(at), np.int64)
    size = round(block_s * 1e9)
    count = max(1, (int(scored[-1] - scored[0]) + size // 2) // size)
    return np.asarray(np.clip((at - scored[0]) // size, 0, count - 1), dtype=np.int64)
