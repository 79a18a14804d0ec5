"""The night's estimators: fitted on the train windows, scored on the validation windows, with a replay's spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import polars as pl

from features.errors import ModelError
from features.kv import bytes_per_s
from features.lake import Lake
from features.tables import decode_steps, length_table, prefill_steps
from features.transfers import transfers
from models.fit import FitReport, HoldoutReport, TrainTables, fit_estimators, score_estimators
from models.portable import Estimators, RiskSigma
from models.risk import fit_risk
from models.splits import Window
from pipelines.night.inputs import DayLogs, Inputs, read_day
from pipelines.night.workloads import window_traffic
from pipelines.settings import Pool
from policies.booked_output import booked_output, expected_output
from policies.objective import latency
from policies.policy import default_policy
from policies.twin.cluster import Cluster
from policies.twin.outcomes import Noise
from policies.twin.replay import replay
from policies.twin.workload import Workload

NOISE_VALUES = 4096


@dataclass(frozen=True, slots=True)
class Fitted:
    """Estimators of a night. `rows`: training table -> its rows. `notes`: what could not be learned and stands at its
    default.
    """

    estimators: Estimators
    report: FitReport
    holdout: HoldoutReport
    rows: Mapping[str, int]
    notes: tuple[str, ...]


def fit_night(lake: Lake, pool: Pool, inputs: Inputs) -> Fitted:
    """Fit on train, score on validation, and set the risk spread from a replay of the last train window.

    Raises ModelError naming the tables that are too small to learn from.
    """
    seed = pool.search.seed
    tables = train_tables(lake, pool, inputs.cluster, inputs.split.train)
    estimators, report = fit_estimators(tables, seed=seed)
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
    rows = {name: getattr(tables, name).height for name in ("lengths", "prefill_steps", "decode_steps", "transfers")}
    return Fitted(replace(estimators, risk=risk), report, holdout, rows, tuple(notes))


def train_tables(lake: Lake, pool: Pool, cluster: Cluster, windows: Sequence[Window]) -> TrainTables:
    """The training tables of at least one window. Each is made of whole days, so that neighbours of a request count,
    and then cut to what ended or arrived within a window.
    """
    parts = [_window_tables(read_day(lake, pool, w.day), pool, w) for w in windows]
    lengths, prefill, decode, sent = (pl.concat(column) for column in zip(*parts, strict=True))
    return TrainTables(
        lengths=lengths,
        prefill_steps=prefill,
        decode_steps=decode,
        transfers=sent,
        capacity_tokens=float(max(n.blocks for n in cluster.decode) * cluster.block_tokens),
    )


def _window_tables(logs: DayLogs, pool: Pool, window: Window) -> tuple[pl.DataFrame, ...]:
    start, end = window.start_us, window.end_us
    facts = {n.name: (n.rack, bytes_per_s(n.port_gbps)) for n in pool.nodes if n.valid.holds(start)}
    uplinks = {(u.from_rack, u.to_rack): bytes_per_s(u.gbps) for u in pool.uplinks if u.valid.holds(start)}
    steps = prefill_steps(logs.requests, pool.discipline.chunk_tokens)
    sent = transfers(logs.requests, facts, uplinks)
    began = pl.col("started_at_us")
    return (
        length_table(logs.requests).filter(pl.col("arrived_at_us").is_between(start, end, closed="left")),
        steps.filter(began >= start, began + pl.col("busy_us") < end),
        decode_steps(logs.node_loads).filter(pl.col("observed_at_us").is_between(start, end, closed="left")),
        sent.filter(began >= start, began + pl.col("duration_us") < end),
    )


def residual_noise(estimators: Estimators) -> Noise:
    """What the laws leave open, as multipliers: log-normal by each law's spread, of mean 1."""
    normal = NormalDist()
    z = [normal.inv_cdf((k + 0.5) / NOISE_VALUES) for k in range(NOISE_VALUES)]

    def table(sigma: float) -> np.typing.NDArray[np.float64]:
        return np.array([math.exp(sigma * value - 0.5 * sigma * sigma) for value in z])

    return Noise(table(estimators.prefill.sigma), table(estimators.decode.sigma), table(estimators.transfer.sigma))


def replay_risk(pool: Pool, cluster: Cluster, estimators: Estimators, workload: Workload) -> RiskSigma:
    """Spread of log(realised / predicted) of a replay under the default policy.

    ModelError if fewer than 20 requests finished with a prediction.
    """
    policy = default_policy(pool.classes)
    names = [c.name for c in pool.classes]
    result = replay(
        cluster,
        estimators,
        policy,
        workload,
        seed=pool.search.seed,
        estimated_output=booked_output(estimators.length, names, [c.quantile for c in pool.classes], workload),
        expected_output=expected_output(estimators.length, names, workload),
        noise=residual_noise(estimators),
    )
    times = latency(workload, result)
    scored = workload.scored
    return RiskSigma(
        ttft=fit_risk(times.ttft_s[scored], result.predicted_ttft_s[scored]),
        tpot=fit_risk(times.tpot_s[scored], result.predicted_tpot_s[scored]),
    )
