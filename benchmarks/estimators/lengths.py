"""Output lengths on real traces, time-ordered: the first three quarters fit, the last quarter is tested.

Scores are of the shipped form, run online: table, offsets, and the rule that moves them as answers end. Where a trace
has no finish times an answer is seen 60 rows later. Baselines see the same answers; the best of them is picked on the
test part. No setting of the estimator was chosen on a last quarter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.estimators.bars import Bar, Part, Row
from benchmarks.estimators.lengths_baselines import baselines
from benchmarks.estimators.lengths_data import azure, kv_cache, mooncake_conversation
from models.length.fit import LEVELS, LengthFit, fit_length
from models.length.online import frozen_quantiles, online_quantiles
from models.length.rows import LengthRows, read_lengths
from models.length.scores import christoffersen, crps, kupiec
from models.metrics import BoolArray, FloatArray, pinball_loss

SEED = 1
LEVEL = 0.9
LEAST = 500
BLOCK_US = 300_000_000
LONGEST = "longest answer so far"


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace with its bars: gain in pinball at q0.9 over the best baseline, tokens reserved per actual token."""

    name: str
    load: Callable[[Path], pl.DataFrame]
    gain_frac: float
    reserve_ratio: float


TRACES = (
    Trace("azure conversation", azure, 0.08, 1.30),
    Trace("mooncake conversation", mooncake_conversation, 0.12, 1.75),
    Trace("kv-cache-tester", kv_cache, 0.10, 2.2),
)


def measure(data: Path) -> Part:
    """All traces. FileNotFoundError if one is absent."""
    rows: list[Row] = []
    bars: list[Bar] = []
    for trace in TRACES:
        table = trace.load(data)
        found, more = _measure(trace, table)
        rows += found
        bars += more
        if trace.load is kv_cache:
            rows += _without_app(trace, table)
    notes = (
        "None of the traces has max_tokens; `longest answer so far` is what a limit that never cuts would reserve.",
        "kv-cache-tester: the flag for streaming, part of the request, stands as `app`; think_time is not used.",
        f"Groups of {LEAST} rows or more: fifths of the prompt length, model, first and later turns, five minutes.",
    )
    return Part("lengths", tuple(rows), tuple(bars), notes)


def _measure(trace: Trace, table: pl.DataFrame) -> tuple[list[Row], list[Bar]]:
    first = 3 * table.height // 4
    fit, tested = fit_length(table[:first], seed=SEED), read_lengths(table[first:])
    law = fit.law
    shipped = online_quantiles(law, tested)
    methods = dict(baselines(read_lengths(table), first, law.levels))
    best = min(_pinball(tested.output, q) for name, q in methods.items() if name != LONGEST)
    methods["shipped, offsets frozen"] = frozen_quantiles(law, tested)
    methods["LightGBM, online"] = _full_online(fit, tested)
    methods["shipped, online"] = shipped
    groups = dict(_groups(table[:first], tested))
    rows = [_row(trace, name, tested, q, best, groups) for name, q in methods.items()]
    crossing = int(np.count_nonzero(np.diff(shipped, axis=1) < 0.0))
    loss = _pinball(tested.output, shipped) / _pinball(tested.output, methods["LightGBM, online"]) - 1.0
    worst, group = max((_off(tested.output, shipped, members), name) for name, members in groups.items())
    name, last = trace.name, rows[-1].figures
    bars = [
        Bar(f"{name}: pinball q0.9 gain over the best baseline", last["gain_frac"], trace.gain_frac, "at least"),
        Bar(f"{name}: q0.9 coverage off, worst group ({group}) / its tolerance", worst, 1.0),
        Bar(f"{name}: reserved / actual at q0.9", last["reserved/actual"], trace.reserve_ratio),
        Bar(f"{name}: quantile crossings", crossing, 0.0),
        Bar(f"{name}: pinball q0.9 lost against LightGBM", loss, 0.05),
    ]
    return rows, bars


def _without_app(trace: Trace, table: pl.DataFrame) -> list[Row]:
    """The shipped form where the flag for streaming is not known."""
    blind = replace(trace, name=f"{trace.name}, no flag")
    rows, _ = _measure(blind, table.with_columns(app=pl.lit(None, pl.String)))
    return rows[-1:]


def _full_online(fit: LengthFit, tested: LengthRows) -> FloatArray:
    """The LightGBM model with its own offsets and the same online rule."""
    assert fit.full is not None
    return online_quantiles(replace(fit.law, offset=fit.full.offset), tested, fit.full.base_tokens(tested))


def _row(
    trace: Trace, method: str, tested: LengthRows, q: FloatArray, best: float, groups: dict[str, BoolArray]
) -> Row:
    y, at = tested.output, LEVELS.index(LEVEL)
    missed = y > q[:, at]
    figures = {
        "rows": float(y.size),
        **{f"pinball q{level:g}": pinball_loss(y, q[:, k], level=level) for k, level in enumerate(LEVELS)},
        "crps": crps(y, q, LEVELS),
        "gain_frac": 1.0 - _pinball(y, q) / best,
        "coverage": float(1.0 - missed.mean()),
        "worst group": max(abs(float(np.mean(~missed[members])) - LEVEL) for members in groups.values()),
        "kupiec_p": kupiec(int(np.count_nonzero(missed)), y.size, expected_frac=1.0 - LEVEL),
        "christoffersen_p": christoffersen(missed),
        "reserved/actual": float(q[:, at].sum() / y.sum()),
    }
    return Row(trace.name, "last quarter in time", method, figures)


def _groups(fitted: pl.DataFrame, tested: LengthRows) -> Iterator[tuple[str, BoolArray]]:
    """Groups of tested rows that are large enough."""
    prompt = tested.column("prompt_tokens")
    fifth = np.searchsorted(np.quantile(fitted["prompt_tokens"].to_numpy(), [0.2, 0.4, 0.6, 0.8]), prompt)
    turn = tested.column("session_turn")
    block = tested.frame["arrived_at_us"].to_numpy() // BLOCK_US
    model = tested.frame["model"].fill_null("").to_numpy()
    every = [
        *((f"prompt fifth {at + 1}", fifth == at) for at in range(5)),
        *((f"model {name}", model == name) for name in sorted(set(model.tolist())) if name),
        ("first turns", turn == 0),
        ("later turns", turn > 0),
        *((f"block {at}", block == start) for at, start in enumerate(np.unique(block), 1)),
    ]
    yield "all", np.ones(tested.count, dtype=np.bool_)
    for name, members in every:
        if np.count_nonzero(members) >= LEAST:
            yield name, members


def _off(y: FloatArray, q: FloatArray, members: BoolArray) -> float:
    """|coverage - 0.9| of a group in parts of its tolerance, 0.03 + 2·√(0.09/n)."""
    covered = y[members] <= q[members, LEVELS.index(LEVEL)]
    tolerance = 0.03 + 2.0 * float(np.sqrt(0.09 / covered.size))
    return abs(float(covered.mean()) - LEVEL) / tolerance


def _pinball(y: FloatArray, q: FloatArray) -> float:
    return pinball_loss(y, q[:, LEVELS.index(LEVEL)], level=LEVEL)
