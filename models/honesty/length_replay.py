"""A day's answers under a length law: what a router that follows them would have expected of each at its arrival.

Equal to `LengthTracker` fed in the order of time, bit for bit. The table is read for all rows at once; only the offsets
go from answer to answer. `recent_output` is a column: it depends on the answers alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from features.errors import ModelError
from features.naming import DEFAULT_CLASS
from models.columns import numeric, require
from models.honesty.arrays import leaves
from models.metrics import FloatArray
from models.portable.length import INPUTS, Arrival, LengthLaw

COLUMNS = ("arrived_at_us", "ended_at_us", "slo_class", "prompt_tokens", "output_tokens")
TEXTS = ("app", "tenant", "model")
NUMBERS = (
    "cached_frac", "max_output_tokens", "turn", "previous_output", "session_mean_output", "hour", "recent_output",
)  # fmt: skip
"""Fields of an `Arrival` that may be unknown."""
TABLE = "lengths"


@dataclass(frozen=True, slots=True)
class Expected:
    """Quantiles of n answers, in order of arrival. `followed`, `frozen`: shape (n, levels), with offsets that follow
    the day's answers and with those of the law. `group`: the law's group. `app`: `<class>/<app>`, or the class without
    one.
    """

    levels: tuple[float, ...]
    followed: FloatArray
    frozen: FloatArray
    output: FloatArray
    arrived_at_us: FloatArray
    group: tuple[str, ...]
    app: tuple[str, ...]


def answers(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame in order of arrival, with every column that a length law reads; unknown ones are null.

    One row an answer that ended by itself or at its limit: `arrived_at_us, ended_at_us` (null: nobody saw it end),
    `slo_class, prompt_tokens, output_tokens`, and what of TEXTS and NUMBERS is known (`session_turn` for `turn`).
    ModelError if a column is missing or damaged.
    """
    require(frame, COLUMNS, table=TABLE)
    if "session_turn" in frame.columns and "turn" not in frame.columns:
        frame = frame.with_columns(turn=pl.col("session_turn"))
    missing = [pl.lit(None, pl.Float64).alias(name) for name in NUMBERS if name not in frame.columns]
    missing += [pl.lit(None, pl.String).alias(name) for name in TEXTS if name not in frame.columns]
    for name in ("arrived_at_us", "prompt_tokens", "output_tokens"):
        if np.isnan(numeric(frame, name, table=TABLE, least=-math.inf if name == "arrived_at_us" else 0.0)).any():
            raise ModelError("a column must have no nulls", place=f"{TABLE}.{name}")
    whole = frame.with_columns(missing).with_columns(
        pl.col("slo_class").cast(pl.String).fill_null(DEFAULT_CLASS), pl.col(TEXTS).cast(pl.String)
    )
    return whole.sort("arrived_at_us", "ended_at_us", "prompt_tokens", "output_tokens", maintain_order=True)


def follow(law: LengthLaw, frame: pl.DataFrame) -> Expected:
    """Quantiles of each answer of `answers(frame)` at its arrival. An answer is observed when it ends."""
    rows = answers(frame)
    fields = ["slo_class", "prompt_tokens", *TEXTS, *NUMBERS]
    arrivals = [Arrival(**row) for row in rows.select(fields).iter_rows(named=True)]
    group = tuple(law.group(arrival) for arrival in arrivals)
    base = _base(law, arrivals)
    cap = _cap(law, rows)
    output = numeric(rows, "output_tokens", table=TABLE, least=0.0)
    arrived = numeric(rows, "arrived_at_us", table=TABLE, least=-math.inf)
    ended = numeric(rows, "ended_at_us", table=TABLE, least=-math.inf)
    offset = _offsets(law, group, base, cap, output, arrived, ended)
    constant = np.array([law.offset[name] for name in group]).reshape(len(group), len(law.levels))
    return Expected(
        levels=law.levels,
        followed=_quantiles(base, offset, cap),
        frozen=_quantiles(base, constant, cap),
        output=output,
        arrived_at_us=arrived,
        group=group,
        app=tuple(a.slo_class if a.app is None else f"{a.slo_class}/{a.app}" for a in arrivals),
    )


def _base(law: LengthLaw, arrivals: Sequence[Arrival]) -> FloatArray:
    """`LengthLaw.base` of each arrival, shape (rows, levels)."""
    # numpy's own logarithm may differ from the law's in the last bit: inputs are made by the law itself.
    x = np.array([law.inputs(arrival) for arrival in arrivals]).reshape(len(arrivals), len(INPUTS))
    place = leaves(law.table, law.table.roots[0], x).astype(np.int64)
    found: FloatArray = np.array(law.rows)[place]
    return found


def _cap(law: LengthLaw, rows: pl.DataFrame) -> FloatArray:
    limit = math.inf if law.limit_tokens is None else law.limit_tokens
    own = numeric(rows, "max_output_tokens", table=TABLE, least=0.0)
    found: FloatArray = np.where(np.isnan(own), limit, np.minimum(own, limit))
    return found


def _quantiles(base: FloatArray, offset: FloatArray, cap: FloatArray) -> FloatArray:
    raised = np.maximum.accumulate(np.maximum(base * offset, 0.0), axis=1)
    found: FloatArray = np.minimum(raised, cap[:, None])
    return found


def _offsets(
    law: LengthLaw,
    group: tuple[str, ...],
    base: FloatArray,
    cap: FloatArray,
    output: FloatArray,
    arrived: FloatArray,
    ended: FloatArray,
) -> FloatArray:
    """Offsets at each arrival, shape (rows, levels). What ends at the time of an arrival is not known to it yet."""
    state = {name: list(values) for name, values in law.offset.items()}
    rests = [1.0 - level for level in law.levels]
    found: list[tuple[float, ...]] = [()] * len(group)
    seen = np.flatnonzero(np.isfinite(ended))
    row = np.concatenate([seen, np.arange(len(group))])
    at = np.concatenate([ended[seen], arrived])
    kind = np.concatenate([np.ones(len(seen)), np.zeros(len(group))])
    order = np.lexsort((row, kind, at))
    bases, caps, outputs = base.tolist(), cap.tolist(), output.tolist()
    for k, arrives in zip(row[order].tolist(), (kind[order] == 0.0).tolist(), strict=True):
        offset = state[group[k]]
        if arrives:
            found[k] = tuple(offset)
            continue
        pace, least, most, tokens = law.pace[group[k]], 0.0, caps[k], outputs[k]
        for j, value in enumerate(bases[k]):
            raised = value * offset[j]
            least = max(least, raised)
            missed = 1.0 if tokens > (least if least < most else most) else 0.0
            offset[j] *= 1.0 + pace[j] * (missed - rests[j])
    return np.array(found).reshape(len(group), len(law.levels))
