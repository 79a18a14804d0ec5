"""How far the twin is off: stage by stage, and by what people look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.fidelity.logs import Logged
from benchmarks.fidelity.twin import Outcome, stage_ns
from policies.twin.outcomes import Replay

QUANTILES = (50, 90, 99)
EQUAL_NS = 1_000


@dataclass(frozen=True, slots=True)
class Case:
    """`relative_error`: metric -> twin / pool - 1. `allowed`: metric -> the most that it may be off."""

    relative_error: Mapping[str, float]
    allowed: Mapping[str, float]

    @property
    def within(self) -> bool:
        """No metric is further off than allowed."""
        return all(abs(error) <= self.allowed[name] for name, error in self.relative_error.items())


def equal_share(logged: Logged, result: Replay) -> dict[str, float]:
    """Stage -> share of requests whose time is the pool's within 1 µs; `reused`: whose reused tokens are."""
    twin = stage_ns(result)
    found = {stage: float(np.mean(np.abs(twin[stage] - times) <= EQUAL_NS)) for stage, times in logged.stage_ns.items()}
    return found | {"reused": float(np.mean(result.cached_tokens == logged.reused))}


def metrics(outcome: Outcome, from_ns: int) -> dict[str, float]:
    """Of the requests that arrive from `from_ns` on: seconds, requests a second, tokens."""
    part = outcome.arrival_ns >= from_ns
    arrival, first, last = (x[part] for x in (outcome.arrival_ns, outcome.first_ns, outcome.last_ns))
    output = outcome.output[part]
    many = output > 1
    times = {
        "ttft": first - arrival,
        "tpot": (last - first)[many] / (output[many] - 1),
        "e2e": last - arrival,
    }
    found = {
        f"{name}_p{level}": float(np.percentile(values, level)) * 1e-9
        for name, values in times.items()
        for level in QUANTILES
    }
    found["throughput"] = float(len(arrival) / ((last.max() - arrival.min()) * 1e-9))
    return found | {"reused": float(outcome.reused[part].sum())}


def relative(twin: Mapping[str, float], pool: Mapping[str, float]) -> dict[str, float]:
    """Metric -> twin / pool - 1."""
    return {name: twin[name] / value - 1.0 for name, value in pool.items()}


def mean(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metric -> mean over runs."""
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def spread(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metric -> how far single runs lie apart, relative to their mean."""
    middle = mean(found)
    return {name: (max(one[name] for one in found) - min(one[name] for one in found)) / middle[name] for name in middle}
