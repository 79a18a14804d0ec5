"""Laws from the pool's logs alone: ingested like any pool's, fitted by the project's estimators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from features.ingest import ingest
from features.kv import bytes_per_s
from features.lake import Lake
from features.landings import with_landings
from features.schemas import with_all_columns
from features.step_sources import decode_table, prefill_table
from features.transfers import transfers
from models.portable.estimators import Estimators
from models.steps.fit import StepFit, fit_decode, fit_prefill
from models.transfer.fit import TransferFit, fit_transfer
from policies.lengths import constant_length
from policies.twin.cluster import Cluster

START_US = 1_767_571_200_000_000
POOL = "dynamo"


@dataclass(frozen=True, slots=True)
class Fitted:
    """`laws` with how they were found. `until_us`: what happened later was not looked at."""

    laws: Estimators
    prefill: StepFit
    decode: StepFit
    transfer: TransferFit
    until_us: int


def fit_first_half(logs: Path, trace: Path, pool: Cluster, lake: Path) -> Fitted:
    """The laws of the logs of the first half of the requests' arrivals. `lake`: an empty folder."""
    held = Lake(lake)
    files = [logs / name for name in ("requests.jsonl", "telemetry.jsonl") if (logs / name).exists()]
    ingest(files, format="auto", pool=POOL, lake=held, starts_at_us=START_US, trace=trace)
    requests, loads = (_table(held, name) for name in ("requests", "node_loads"))
    until_us = int(requests["arrived_at_us"].sort()[requests.height // 2])
    requests = _as_of(requests, until_us)
    loads = loads.filter(pl.col("observed_at_us") < until_us)
    none = with_all_columns("steps", pl.DataFrame())
    capacity = float(max(n.blocks for n in pool.decode) * pool.block_tokens)
    prefill = fit_prefill(prefill_table(requests, none, pool.discipline.chunk_tokens))
    decode = fit_decode(decode_table(loads, none, requests), capacity_tokens=capacity)
    sent = transfers(
        with_landings(requests, pool.kv_bytes_per_token),
        {n.name: (n.rack, bytes_per_s(n.port_gbps)) for n in (*pool.prefill, *pool.decode)},
        {},
        kv_bytes_per_token=float(pool.kv_bytes_per_token),
        block_tokens=pool.block_tokens,
        contention=pool.discipline.contention,
    )
    transfer = fit_transfer(sent)
    sending = replace(transfer.law, contention=pool.discipline.contention)
    laws = Estimators(constant_length(1.0), prefill.laws, decode.laws, sending)
    return Fitted(laws, prefill, decode, transfer, until_us)


def _as_of(requests: pl.DataFrame, until_us: int) -> pl.DataFrame:
    """What a log that ends at `until_us` says: later times are unknown."""
    times = [name for name in requests.columns if name.endswith("_at_us") and name != "arrived_at_us"]
    return requests.filter(pl.col("arrived_at_us") < until_us).with_columns(
        pl.when(pl.col(name) < until_us).then(pl.col(name)).alias(name) for name in times
    )


def _table(lake: Lake, table: str) -> pl.DataFrame:
    days = lake.days(table, POOL)
    return pl.concat(
        [with_all_columns(table, pl.DataFrame()), *(pl.read_parquet(lake.path(table, day, POOL)) for day in days)]
    )
