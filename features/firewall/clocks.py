"""Clock skew between the router and the nodes, from causality: no node starts before it was told to.

For every request, router's decision <= P's start and P's end <= router's first token; the same for D. Each node's
offset is bounded from below by the earliest starts and from above by the latest ends. A node whose clock breaks a bound
is shifted just as far as it must be; a node whose bounds contradict each other cannot be corrected, and its rows that
are out of order go to quarantine.

What is no fault: P computes on after the client has gone, and a clock of whole seconds is late by up to one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import polars as pl

from features.columns import CLOCK_SKEW_US
from features.quality import REASONS, Rules

KEPT = 1_024
"""Most extreme differences that are kept of a node."""
REQUESTS_MIN = 20
"""Fewer requests say nothing about a node's clock."""
OUTLIERS = 500
"""One request in so many (and one more) may be damaged without moving its node's clock."""
OUTLIERS_MAX = 100
"""Up to one request in so many is taken to be damaged where the bounds contradict each other."""
OFFSET_MIN_US = 1_000
"""Smaller offsets are rounding."""
REASONS["stages_in_order"] = (
    "stages of different hosts are out of order by more than clocks may differ, and no one offset of the nodes' clocks "
    "explains it"
)

_S_US = 1_000_000
_UNBOUND = ("cancelled", "failed", "rejected")
"""The router ends these by itself; its nodes hear of it later."""
_P_TIMES = ("prefill_started_at_us", "prefill_finished_at_us", "transfer_started_at_us", "transfer_finished_at_us")
_D_TIMES = ("decode_admitted_at_us",)
_ENDED = "finished_at_us"


def _at(column: str) -> pl.Expr:
    """The time; that of a request's end only where the nodes had ended as well."""
    time = pl.col(column)
    if column != _ENDED:
        return time
    return pl.when(~pl.col("finish_reason").is_in(_UNBOUND).fill_null(value=False)).then(time)


def _at_latest(time: pl.Expr) -> pl.Expr:
    """The end of a time's tick, for clocks of whole seconds."""
    return pl.when(time % _S_US == 0).then(time + (_S_US - 1)).otherwise(time)


_TOLD = pl.coalesce("decided_at_us", "arrived_at_us")
_P_START = pl.coalesce("prefill_started_at_us", "prefill_finished_at_us")
_P_END = pl.coalesce("prefill_finished_at_us", "prefill_started_at_us")
_D_START = pl.col("decode_admitted_at_us")
_FIRST = pl.coalesce(pl.col("first_token_at_us"), _at(_ENDED))
# Side, how much the node's clock must be moved at least, and at most; a request of one node that is both counts once.
_BOUNDS = (
    ("prefill_node", _TOLD - _at_latest(_P_START), _at_latest(_FIRST) - _P_END, pl.lit(1, pl.Int64)),
    (
        "decode_node",
        _TOLD - _at_latest(_D_START),
        _at_latest(_at(_ENDED)) - _D_START,
        pl.col("decode_node").ne_missing(pl.col("prefill_node")).cast(pl.Int64),
    ),
)
# A transfer may overlap prefill, D may be reserved before or after it, and P or D may make the first token.
_WAYS = (
    ("decided_at_us", "prefill_started_at_us", "transfer_started_at_us", _ENDED),
    ("arrived_at_us", "prefill_started_at_us", "first_token_at_us"),
    ("prefill_finished_at_us", "transfer_finished_at_us", _ENDED),
    ("decided_at_us", "decode_admitted_at_us", _ENDED),
)
_PAIRS = sorted({pair for way in _WAYS for pair in combinations(way, 2)})
_SURELY_IN_ORDER = pl.all_horizontal(
    (pl.col(later) + CLOCK_SKEW_US >= pl.col(earlier)).fill_null(value=True) for earlier, later in _PAIRS
)
_IN_ORDER = pl.all_horizontal(
    (_at_latest(_at(later)) + CLOCK_SKEW_US >= _at(earlier)).fill_null(value=True) for earlier, later in _PAIRS
)


def stages_in_order(requests: pl.DataFrame) -> pl.Series:
    """Whether times of different hosts are in order, up to CLOCK_SKEW_US and the ticks of coarse clocks."""
    holds = requests.select(holds=_SURELY_IN_ORDER)["holds"]
    return holds if holds.all() else requests.select(holds=_IN_ORDER)["holds"]


STAGE_ORDER: Rules = {"stages_in_order": stages_in_order}


class ClockEvidence:
    """What the requests of a log say about the clocks of their nodes. Memory: KEPT numbers a node, twice."""

    def __init__(self) -> None:
        self._held: pl.DataFrame | None = None
        self.disorder = 0
        """Requests that are out of order as logged."""

    def see(self, requests: pl.DataFrame) -> None:
        """Takes in rows of the table `requests`."""
        self.disorder += int((~stages_in_order(requests)).sum())
        seen = []
        for node, least, most, rows in _BOUNDS:
            bounds = requests.select(pl.col(node).alias("node"), least=least, most=most, rows=rows)
            known = bounds.filter(
                pl.col("node").is_not_null(), pl.any_horizontal(pl.col("least", "most").is_not_null())
            )
            if known.height:
                seen.append(_extremes(known.group_by("node").agg(pl.all())))
        if self._held is not None:
            seen.append(self._held)
        if seen:
            flat = pl.col("least", "most").list.explode(keep_nulls=False, empty_as_null=False)
            self._held = _extremes(pl.concat(seen).group_by("node").agg(flat, pl.col("rows")))

    def offsets_us(self) -> dict[str, int]:
        """Node -> what must be added to its times, for nodes whose clock is off and can be set right."""
        if self._held is None:
            return {}
        found = {}
        for node, least, most, rows in self._held.sort("node").select("node", "least", "most", "rows").iter_rows():
            offset = _offset_us(least, most, rows) if rows >= REQUESTS_MIN else 0
            if abs(offset) >= OFFSET_MIN_US:
                found[node] = offset
        return found


def _offset_us(least: list[int], most: list[int], rows: int) -> int:
    """The smallest move that all requests but the damaged ones allow; 0 if there is none."""
    surely = min(KEPT - 1, 1 + rows // OUTLIERS)
    for rank in range(surely, max(surely, min(KEPT - 1, rows // OUTLIERS_MAX)) + 1):
        low = least[rank] if len(least) > rank else None
        high = most[rank] if len(most) > rank else None
        if low is None or high is None or low <= high:
            return low if low is not None and low > 0 else high if high is not None and high < 0 else 0
    return 0


def _extremes(grouped: pl.DataFrame) -> pl.DataFrame:
    return grouped.select(
        "node",
        pl.col("least").list.drop_nulls().list.sort(descending=True).list.head(KEPT),
        pl.col("most").list.drop_nulls().list.sort().list.head(KEPT),
        pl.col("rows").list.sum(),
    )


def shifted(requests: pl.DataFrame, offsets_us: Mapping[str, int]) -> pl.DataFrame:
    """Requests with the times of each node set right."""
    changes = []
    for node, times in (("prefill_node", _P_TIMES), ("decode_node", _D_TIMES)):
        by = pl.col(node).replace_strict(dict(offsets_us), default=0, return_dtype=pl.Int64).fill_null(0)
        changes += [(pl.col(time) + by).alias(time) for time in times]
    return requests.with_columns(changes)


def moved(requests: pl.DataFrame, offsets_us: Mapping[str, int]) -> int:
    """How many requests have times of a node that is set right."""
    nodes = list(offsets_us)
    return int(requests.select(pl.any_horizontal(pl.col("prefill_node", "decode_node").is_in(nodes)).sum()).item())
