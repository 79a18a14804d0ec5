"""The canonical tables: names, dtypes, units and row rules.

Units are in the names: `_us` int64 unix microseconds UTC, `_s` seconds, `_tokens`, `_blocks`, `_bytes`. Unknown is
null, never 0. `TABLES` describes each table: its schema, the order of its rows and the time whose UTC day a row is of.
"""

# ruff: noqa: N805  (dataframely calls its rules with the class)
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import dataframely as dy
import polars as pl

from features.columns import at_most, count, in_order, number, one_of, text, time
from features.parts_schema import DecisionParts, MetricSamples, RequestParts, TransferTotals
from features.requests_schema import Requests

ROLES = ("prefill", "decode", "colocated")
STATES = ("ready", "draining", "recovering", "down")
PHASES = ("prefill", "decode")
DECODE_MOMENTS = 6
"""`decode_moments` = [n, Σb, Σt, Σb², Σb·t, Σgenerated], cumulative; b = sequences of a step, t = its microseconds."""
COUNTER_MAX = 2.0**62
"""No engine lives long enough to count further; differences of counters fit an int64."""

TERM_COLUMNS: Mapping[str, str] = {
    "PrefillWait": "prefill_wait_s",
    "PrefillCompute": "prefill_compute_s",
    "TransferTime": "transfer_time_s",
    "DecodeWait": "decode_wait_s",
    "ProjectedKVPressure": "projected_kv_pressure",
    "SloRisk": "slo_risk",
    "PrefixBenefit": "prefix_benefit_s",
    "NeighbourHarm": "neighbour_harm",
    "Crowd": "crowd",
}
"""Name of a term in the decision log -> its column in `decisions`."""


class NodeLoads(dy.Schema):
    """One row a node a sample. `_blocks` count blocks of `block_tokens` tokens (1 for token-granular engines).

    Counters are cumulative since the engine started: `prefill_busy_us prefill_computed_tokens decode_moments
    generated_tokens preemptions allocation_failures swap_bytes`. `free_blocks` of engines that count evictable prefix
    as free includes it; then `reclaimable_blocks` is null.

    Requests that wait for a D to take them (`bootstrap_requests` of a P), for KV slots (`prealloc_requests` of a D) or
    for those that they lost (`retracted_requests`) are among `waiting_requests`; those whose KV is on its way are not:
    `transferring_requests` of a P, `receiving_requests` of a D. `last_transfer_*`: what ended last, no mean.
    """

    observed_at_us = time(nullable=False, primary_key=True)
    node = text(nullable=False, primary_key=True)
    role = dy.String(nullable=True)
    state = dy.String(nullable=True)
    block_tokens = count(nullable=False, minimum=1)
    usable_blocks = count()
    active_blocks = count()
    reserved_blocks = count()
    inflight_blocks = count()
    prefix_blocks = count()
    reclaimable_blocks = count()
    free_blocks = count()
    offloaded_blocks = count()
    computing_blocks = count()
    awaiting_transfer_blocks = count()
    transferring_blocks = count()
    queued_blocks = count()
    waiting_requests = count()
    waiting_prompt_tokens = count()
    running_requests = count()
    running_tokens = count()
    bootstrap_requests = count()
    transferring_requests = count()
    prealloc_requests = count()
    receiving_requests = count()
    retracted_requests = count()
    paused_requests = count()
    last_transfer_bytes_per_s = number(low=0.0)
    last_transfer_us = count()
    prefill_busy_us = count()
    prefill_computed_tokens = count()
    decode_moments = dy.List(
        dy.Float64(min=0.0, max=COUNTER_MAX), nullable=True, min_length=DECODE_MOMENTS, max_length=DECODE_MOMENTS
    )
    generated_tokens = count()
    preemptions = count()
    allocation_failures = count()
    swap_bytes = count()
    source = text()

    @dy.rule()
    def role_known(cls) -> pl.Expr:
        """`role` is one of ROLES."""
        return one_of("role", ROLES)

    @dy.rule()
    def state_known(cls) -> pl.Expr:
        """`state` is one of STATES."""
        return one_of("state", STATES)

    @dy.rule()
    def active_within_usable(cls) -> pl.Expr:
        """Live sequences hold usable blocks only."""
        return at_most("active_blocks", "usable_blocks")


class Steps(dy.Schema):
    """One row an observed engine step, or a difference of two counter readings (then sequences, tokens: means)."""

    observed_at_us = time(nullable=False, primary_key=True)
    node = text(nullable=False, primary_key=True)
    phase = dy.String(primary_key=True)
    n_steps = count(minimum=1)
    busy_us = dy.Int64(min=1)
    sequences = number(low=0.0)
    tokens = number(low=0.0)
    new_tokens = count()
    context_tokens = number(low=0.0)
    source = text(nullable=False, primary_key=True)

    @dy.rule()
    def phase_known(cls) -> pl.Expr:
        """`phase` is one of PHASES."""
        return one_of("phase", PHASES)


class Decisions(dy.Schema):
    """One row a candidate pair of a decision: its raw terms (`_s` seconds), what was drawn and what was chosen."""

    request_id = text(nullable=False, primary_key=True)
    decided_at_us = time(nullable=False, primary_key=True)
    router_id = text()
    policy_version = text()
    prefill_node = text(nullable=False, primary_key=True)
    decode_node = text(nullable=False, primary_key=True)
    prefill_wait_s = number(low=0.0)
    prefill_compute_s = number(low=0.0)
    transfer_time_s = number(low=0.0)
    decode_wait_s = number(low=0.0)
    projected_kv_pressure = number(low=0.0)
    slo_risk = number(low=0.0, high=1.0)
    prefix_benefit_s = number(low=0.0)
    neighbour_harm = number(low=0.0)
    crowd = number(low=0.0)
    score = number()
    drawn = dy.Bool(nullable=True)
    chosen = dy.Bool(nullable=False)
    propensity = number(low=0.0, high=1.0)
    telemetry_age_us = count()
    source = text()

    @dy.rule()
    def at_most_one_chosen(cls) -> pl.Expr:
        """A decision chose one pair, or none."""
        return pl.col("chosen").sum().over("request_id", "decided_at_us") <= 1


class Topology(dy.Schema):
    """One row a node (`kind` node) or a direction between racks (`kind` link), in force from..to (open: null)."""

    kind = dy.String(primary_key=True)
    name = text(nullable=False, primary_key=True)
    role = dy.String(nullable=True)
    rack = text()
    from_rack = text()
    to_rack = text()
    total_blocks = count()
    bytes_per_s = number(low=0.0)
    valid_from_us = time(nullable=False, primary_key=True)
    valid_to_us = time()

    @dy.rule()
    def kind_known(cls) -> pl.Expr:
        """`kind` is node or link."""
        return one_of("kind", ("node", "link"))

    @dy.rule()
    def validity_in_order(cls) -> pl.Expr:
        """A validity ends after it begins."""
        return in_order("valid_from_us", "valid_to_us")


@dataclass(frozen=True, slots=True)
class Table:
    """A canonical table. `order` sorts its rows totally; `time_column` is the time whose UTC day is the partition."""

    name: str
    schema: type[dy.Schema]
    time_column: str
    order: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """Primary key columns."""
        return _key(self.schema)

    @property
    def dtypes(self) -> Mapping[str, Any]:
        """Column name -> polars dtype, in table order."""
        return _dtypes(self.schema)


@cache
def _key(schema: type[dy.Schema]) -> tuple[str, ...]:
    return tuple(schema.primary_key())


@cache
def _dtypes(schema: type[dy.Schema]) -> Mapping[str, Any]:
    return MappingProxyType({key: column.dtype for key, column in schema.columns().items()})


@cache
def _no_rows(schema: type[dy.Schema]) -> pl.DataFrame:
    return pl.DataFrame(schema=dict(_dtypes(schema)))


_SCORE_ORDER = ("decided_at_us", "request_id", "profile", "endpoint", "plugin")
TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table("requests", Requests, "arrived_at_us", ("arrived_at_us", "request_id")),
        Table("node_loads", NodeLoads, "observed_at_us", ("observed_at_us", "node")),
        Table("steps", Steps, "observed_at_us", ("observed_at_us", "node", "phase", "source")),
        Table("decisions", Decisions, "decided_at_us", ("decided_at_us", "request_id", "prefill_node", "decode_node")),
        Table("topology", Topology, "valid_from_us", ("valid_from_us", "kind", "name")),
        Table("transfer_totals", TransferTotals, "observed_at_us", ("observed_at_us", "node", "source")),
        Table("request_parts", RequestParts, "part_at_us", ("part_at_us", "request_id", "part")),
        Table("decision_parts", DecisionParts, "decided_at_us", _SCORE_ORDER),
        Table("metric_samples", MetricSamples, "observed_at_us", ("observed_at_us", "node", "metric", "labels")),
    )
}


PROVENANCE: Mapping[str, Any] = {"source": pl.String, "source_file": pl.String, "source_row": pl.Int64}
QUARANTINE: Mapping[str, Any] = {
    "rule": pl.String,
    "rules": pl.List(pl.String),
    "reason": pl.String,
    **PROVENANCE,
    "values": pl.String,
}
"""`rule`: the first broken rule, `<column>|<rule>` or a rule of the table, and its `reason` for people. `values`: the
row as JSON, null for a line that could not be parsed."""


def with_all_columns(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The columns of `table`, in its order and dtypes; columns that `frame` lacks are null, others are dropped."""
    dtypes = TABLES[table].dtypes
    if frame.is_empty():
        return _no_rows(TABLES[table].schema).clone()  # literals alone would make one row
    return frame.select(
        pl.col(column).cast(dtype) if column in frame.columns else pl.lit(None, dtype=dtype).alias(column)
        for column, dtype in dtypes.items()
    )
