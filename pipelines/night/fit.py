"""The night's estimators: fitted on the train windows, scored on the validation windows, with a replay's spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from features.cache_uses import cache_uses
from features.errors import ModelError
from features.kv import bytes_per_s
from features.lake import Lake
from features.landings import with_landings
from features.step_sources import decode_table, prefill_table
from features.tables import length_table
from features.transfers import transfers
from models.fit import FitReport, HoldoutReport, TrainTables, fit_estimators, score_estimators
from models.honesty.cache import CACHE
from models.honesty.gate import Gate, Gated, LastGood
from models.honesty.reading import ESTIMATORS, Reading
from models.portable.estimators import Estimators, RiskSigma
from models.portable.steps import ANY, StepLaws
from models.recency import Change, told
from models.recent_tables import ESTIMATOR_OF, recent_tables
from models.refits import refits
from models.risk import fit_risk
from models.splits import SplitMode, Window
from pipelines.night.inputs import DayLogs, Inputs, read_day
from pipelines.night.workloads import window_traffic
from pipelines.settings import Pool
from policies.objective import latency
from policies.policy import default_policy
from policies.twin.cluster import Cluster
from policies.twin.outcomes import Noise
from policies.twin.replay import replay
from policies.twin.workload import Workload

NOISE_VALUES = 4096
CACHE_WINDOWS = 3


@dataclass(frozen=True, slots=True)
class Fitted:
    """Estimators of a night: newly fitted, or the last good one where a new one was refused (`gates`).

    `report`: of what was fitted tonight. `holdout`, `readings`: of what is used. `rows`: training table -> its rows.
    `notes`: what could not be learned and stands at its default, and what was refused. `digests`: of the file of an
    earlier night that is used. `refits`: the estimators as other blocks of the same traffic would have given them.
    """

    estimators: Estimators
    report: FitReport
    holdout: HoldoutReport
    rows: Mapping[str, int]
    notes: tuple[str, ...]
    gates: tuple[Gate, ...] = ()
    readings: tuple[Reading, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    refits: tuple[Estimators, ...] = ()

    @property
    def origin(self) -> dict[str, dict[str, Any]]:
        """Estimator -> {day, accepted, outcome, reason, loss, last_good_loss, rows} as JSON values. `day`: of the night
        that fitted it.
        """
        names = ("day", "accepted", "outcome", "reason", "loss", "last_good_loss", "rows")
        return {gate.estimator: {name: getattr(gate, name) for name in names} for gate in self.gates}

    @property
    def good(self) -> LastGood:
        """What later nights may fall back on."""
        return LastGood(self.estimators, {name: self.origin[name]["day"] for name in ESTIMATORS})


def fit_night(lake: Lake, pool: Pool, inputs: Inputs, hold: Callable[[Estimators, frozenset[str]], Gated]) -> Fitted:
    """Fit (`fit_as_now`), `hold` against the last good estimators, knowing which new ones are fitted on newest days,
    score on validation, set the risk spread from a replay of the last train window, and fit again on resampled tables.

    Raises ModelError naming the tables that are too small to learn from.
    """
    tables, estimators, report, changed = fit_as_now(lake, pool, inputs)
    newest = {CACHE, *(ESTIMATOR_OF[table] for table in changed)} if inputs.split.mode is SplitMode.DAYS else set()
    held = hold(estimators, frozenset(newest))
    estimators = held.estimators
    holdout = HoldoutReport((), (), ())
    if inputs.split.validation:
        holdout = score_estimators(estimators, train_tables(lake, pool, inputs.cluster, inputs.split.validation))
    notes = [
        f"The log has too few {path} transfers: that path stands at the other one's numbers."
        for path in report.transfer.borrowed
        if len(inputs.cluster.racks) > 1
    ]
    try:
        traffic = window_traffic(lake, pool, inputs, inputs.split.train[-1], estimators.length)
        risk = replay_risk(pool, inputs.cluster, estimators, traffic.workload)
    except ModelError as error:
        risk = RiskSigma()
        notes.append(f"The risk spread stands at its default: {error}.")
    estimators = replace(estimators, risk=risk)
    again: tuple[Estimators, ...] = ()
    if inputs.split.validation:
        try:
            kept = [gate.estimator for gate in held.gates if not gate.accepted]
            again = refits(tables, estimators, count=pool.gates.refits, seed=pool.search.seed, kept=kept)
        except ModelError as error:
            notes.append(f"The estimators were not fitted again on resampled logs: {error}.")
    rows = {name: getattr(tables, name).height for name in ("lengths", "prefill_steps", "decode_steps", "transfers")}
    return Fitted(
        estimators=estimators,
        report=report,
        holdout=holdout,
        rows=rows,
        notes=(*held.notes, *told(changed), *notes),
        gates=held.gates,
        readings=held.readings,
        digests=held.digests,
        refits=again,
    )


def fit_as_now(
    lake: Lake, pool: Pool, inputs: Inputs
) -> tuple[TrainTables, Estimators, FitReport, Mapping[str, tuple[Change, ...]]]:
    """Fit on train, except that caches, and groups that changed since, are fitted as they are in the newest days.

    The tables that were fitted, what was found, and the changed groups by table. Days that are split inside tell of no
    change.
    """
    split, seed = inputs.split, pool.search.seed
    train = train_tables(lake, pool, inputs.cluster, split.train)
    if split.mode is not SplitMode.DAYS:
        return train, *fit_estimators(train, seed=seed), {}
    newer = train_tables(lake, pool, inputs.cluster, (*split.validation, *split.test))
    train = replace(train, cache=newer.cache)
    estimators, report = fit_estimators(train, seed=seed)
    tables, changed = recent_tables(estimators, train, newer)
    return tables, *fit_estimators(tables, seed=seed, known=(train, report)), changed


def train_tables(lake: Lake, pool: Pool, cluster: Cluster, windows: Sequence[Window]) -> TrainTables:
    """The training tables of at least one window. Each is made of whole days, so that neighbours of a request count,
    and then cut to what ended or arrived within a window.
    """
    # Caches are as they are in the newest days; hashes of more days would be most of the memory.
    caching = windows[-CACHE_WINDOWS:]
    parts = [window_tables(read_day(lake, pool, w.day), pool, w, caches=w in caching) for w in windows]
    lengths, prefill, decode, sent, cached = (pl.concat(column) for column in zip(*parts, strict=True))
    return TrainTables(
        lengths=lengths,
        prefill_steps=prefill,
        decode_steps=decode,
        transfers=sent,
        capacity_tokens=float(max(n.blocks for n in cluster.decode) * cluster.block_tokens),
        cache=cached,
        prefill_blocks={n.name: float(n.blocks) for n in cluster.prefill},
        block_tokens=cluster.block_tokens,
        node_type=pool.node_types(),
        contention=pool.discipline.contention,
    )


def window_tables(logs: DayLogs, pool: Pool, window: Window, *, caches: bool = False) -> tuple[pl.DataFrame, ...]:
    """Lengths, prefill steps, decode steps, transfers and (if `caches`) uses of prefix caches of a window of a day."""
    start, end = window.start_us, window.end_us
    facts = {n.name: (n.rack, bytes_per_s(n.port_gbps)) for n in pool.nodes if n.valid.holds(start)}
    uplinks = {(u.from_rack, u.to_rack): bytes_per_s(u.gbps) for u in pool.uplinks if u.valid.holds(start)}
    steps = prefill_table(logs.requests, logs.steps, pool.discipline.chunk_tokens)
    sent = transfers(
        with_landings(logs.requests, pool.kv.bytes_per_token),
        facts,
        uplinks,
        kv_bytes_per_token=pool.kv.bytes_per_token,
        block_tokens=pool.kv.block_tokens,
        contention=pool.discipline.contention,
    )
    began = pl.col("started_at_us")
    return (
        length_table(logs.requests).filter(pl.col("arrived_at_us").is_between(start, end, closed="left")),
        steps.filter(began >= start, began + pl.col("busy_us") < end),
        decode_table(logs.node_loads, logs.steps, logs.requests).filter(
            pl.col("observed_at_us").is_between(start, end, closed="left")
        ),
        sent.filter(began >= start, began + pl.col("duration_us") < end),
        cache_uses(logs.requests if caches else logs.requests.clear()).filter(
            pl.col("at_us").is_between(start, end, closed="left")
        ),
    )


def residual_noise(estimators: Estimators) -> Noise:
    """What the laws leave open, as multipliers: log-normal by each law's spread, of mean 1."""
    normal = NormalDist()
    z = [normal.inv_cdf((k + 0.5) / NOISE_VALUES) for k in range(NOISE_VALUES)]

    def table(sigma: float) -> np.typing.NDArray[np.float64]:
        return np.array([math.exp(sigma * value - 0.5 * sigma * sigma) for value in z])

    prefill, decode, transfer = _spread(estimators.prefill), _spread(estimators.decode), estimators.transfer.sigma
    return Noise(table(prefill), table(decode), table(transfer))


def _spread(laws: StepLaws) -> float:
    """Root mean square of the laws' spreads over the nodes of known type; without such nodes that of the one law."""
    sigmas = [laws.of(node).sigma for node in laws.node_type] or [laws.by_type[ANY].sigma]
    return math.sqrt(sum(sigma * sigma for sigma in sigmas) / len(sigmas))


def replay_risk(pool: Pool, cluster: Cluster, estimators: Estimators, workload: Workload) -> RiskSigma:
    """Spread of log(realised / predicted) of a replay under the default policy.

    ModelError if fewer than 20 requests finished with a prediction.
    """
    policy = default_policy(pool.classes)
    result = replay(
        cluster,
        estimators,
        policy,
        workload,
        seed=pool.search.seed,
        noise=residual_noise(estimators),
    )
    times = latency(workload, result)
    scored = workload.scored
    return RiskSigma(
        ttft=fit_risk(times.ttft_s[scored], result.predicted_ttft_s[scored]),
        tpot=fit_risk(times.tpot_s[scored], result.predicted_tpot_s[scored]),
    )
