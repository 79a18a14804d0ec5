"""How far estimates of a day are off: against the emulated truth where it is known, else against the day's log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.estimators.days import Emulation
from models.honesty.cache import replayed_hits
from models.honesty.lengths import follow
from models.honesty.steps import Times, transfer_times
from models.portable.estimators import Estimators
from models.splits import Window
from pipelines.demo.serve import Served
from pipelines.demo.truth import decode_errors, prefill_errors
from pipelines.night.observed import Observed, observed

MIN_ROWS = 500
"""Answers of a class and app whose coverage counts."""
MIN_TRANSFERS, MIN_STEPS = 50, 20


@dataclass(frozen=True, slots=True)
class Offs:
    """Of each node, port or group: median |predicted / true - 1| of steps and of transfers, share of the answers within
    the 0.9 quantile with their number, and |tokens that a replayed cache holds / those logged - 1|.
    """

    prefill: Mapping[str, float]
    decode: Mapping[str, float]
    transfer: Mapping[str, float]
    coverage: Mapping[str, tuple[float, int]]
    cache: Mapping[str, float]

    def figures(self) -> dict[str, float]:
        """The worst of each kind."""
        away = [abs(share - 0.9) for share, _ in self.coverage.values()]
        worst = {name: getattr(self, name).values() for name in ("prefill", "decode", "transfer", "cache")}
        return {
            **{name: max(values, default=0.0) for name, values in worst.items()},
            "coverage": max(away, default=0.0),
        }


def offs(emulation: Emulation, served: Served, estimators: Estimators) -> Offs:
    """Of one day in the lake, which was served under its own truth."""
    (day,) = served.days
    arrived = emulation.lake.read("requests", day, emulation.pool.name)["arrived_at_us"]
    window = Window(day, int(arrived[0]), int(arrived[-1]) + 1)
    happened = observed(emulation.lake, emulation.pool, [window], caches=True)
    return Offs(
        prefill=_medians(prefill_errors(served, estimators, min_steps=MIN_STEPS)),
        decode=_medians(decode_errors(served, estimators, min_steps=MIN_STEPS)),
        transfer=_transfers(emulation, served, happened, estimators),
        coverage=_coverage(happened, estimators),
        cache=_cache(happened, estimators),
    )


def _medians(errors: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: float(np.median(np.abs(found))) for name, found in errors.items() if len(found)}


def _transfers(emulation: Emulation, served: Served, happened: Observed, estimators: Estimators) -> dict[str, float]:
    """Of the logged transfers over each port: the law against the true one, each with its own shares."""
    said, true = (
        transfer_times(law, happened.under(emulation.pool, law).transfers)
        for law in (estimators.transfer, served.world.laws.transfer)
    )
    error = np.abs(said.predicted / true.predicted - 1.0)
    found = {}
    for ports in _ports(said):
        column = np.array(ports)
        for port in sorted(set(ports) - {""}):
            if (column == port).sum() >= MIN_TRANSFERS:
                found[port] = float(np.median(error[column == port]))
    return found


def _ports(times: Times) -> Iterable[tuple[str, ...]]:
    return times.groups[1:]


def _coverage(happened: Observed, estimators: Estimators) -> dict[str, tuple[float, int]]:
    expected = follow(estimators.length, happened.tables.lengths)
    covered = expected.output <= expected.followed[:, expected.levels.index(0.9)]
    app = np.array(expected.app)
    counts = {name: int((app == name).sum()) for name in sorted(set(expected.app))}
    return {name: (float(covered[app == name].mean()), rows) for name, rows in counts.items() if rows >= MIN_ROWS}


def _cache(happened: Observed, estimators: Estimators) -> dict[str, float]:
    hits = replayed_hits(estimators.cache, happened.tables.prompts, happened.tables.block_tokens)
    node = np.array(hits.node)
    return {
        name: abs(float(hits.predicted[node == name].sum() / hits.seen[node == name].sum()) - 1.0)
        for name in sorted(set(hits.node))
    }
