"""Part tables: what logs tell in pieces. One row is one piece; the tables that people use are derived from them.

A span is not yet a request, a score of one plugin not yet a candidate, a metric sample not yet a state of a node. The
pieces are kept as they came, so that late ones find those that wait for them (features/derived/).
"""

from __future__ import annotations

from typing import Any

import dataframely as dy
import polars as pl

from features.columns import count, number, text, time
from features.requests_schema import Requests

PROFILES = ("prefill", "decode", "pair", "colocated")
"""What a score line chose among: P nodes, D nodes, pairs, or nodes that do both."""


def _any_request_column(dtype: Any) -> dy.Column:  # noqa: ANN401  a polars dtype
    if isinstance(dtype, pl.List):
        return dy.List(dy.UInt64(), nullable=True)
    return dy.String(nullable=True) if dtype == pl.String else dy.Int64(nullable=True)


_KEY: dict[str, Any] = {
    "request_id": text(nullable=False, primary_key=True),
    "part": text(nullable=False, primary_key=True),
    "part_at_us": time(nullable=False),
    "rank": dy.Int64(nullable=False, min=0),
}
_REQUEST = {name: column.dtype for name, column in Requests.columns().items() if name not in _KEY}
_DOC = """One row a span or record about a request.

`part` names it within the request, `part_at_us` is its time, `rank` orders parts that know the same column: the lowest
is believed. The other columns are those of `requests`, null where the part does not know them; their rules are judged
when the request is whole.
"""
RequestParts: type[dy.Schema] = type(
    "RequestParts",
    (dy.Schema,),
    {"__doc__": _DOC, **_KEY, **{name: _any_request_column(dtype) for name, dtype in _REQUEST.items()}},
)


class DecisionParts(dy.Schema):
    """One row a score of an endpoint: by one plugin (`plugin`), or their total (`plugin` = total).

    `profile` says what was chosen among; `score` is the router's own, higher is better; `weight` the plugin's.
    """

    request_id = text(nullable=False, primary_key=True)
    decided_at_us = time(nullable=False, primary_key=True)
    profile = text(nullable=False, primary_key=True)
    endpoint = text(nullable=False, primary_key=True)
    plugin = text(nullable=False, primary_key=True)
    score = number()
    weight = number()
    chosen = dy.Bool(nullable=True)
    router_id = text()
    source = text()


class MetricSamples(dy.Schema):
    """One row a sample of a metric. `labels`: `name="value"` pairs, sorted, without those that name the node."""

    observed_at_us = time(nullable=False, primary_key=True)
    node = text(nullable=False, primary_key=True)
    metric = text(nullable=False, primary_key=True)
    labels = dy.String(nullable=False, primary_key=True)
    value = dy.Float64(nullable=False)
    source = text()


class TransferTotals(dy.Schema):
    """One row a node and interval: KV transfers that ended in it, by counters. `busy_us` sums their times."""

    observed_at_us = time(nullable=False, primary_key=True)
    node = text(nullable=False, primary_key=True)
    interval_us = count(minimum=1)
    transfers = count()
    bytes = number(low=0.0)
    busy_us = number(low=0.0)
    failures = count()
    source = text(nullable=False, primary_key=True)
