"""Rows of observed engine steps as arrays, and what a law says about them.

A row is a window of one node: one step, or what two readings of its counters enclose.

- prefill: `node, n_steps, busy_us, new_tokens, sum_t2, sum_chunk_context`: sums over the steps of T, T², and
  chunk·context (as in `StepLaw`), so a window of many steps is as exact as single steps.
- decode: `node, n_steps, busy_us, sequences, tokens`: means over the window's steps of running sequences and of their
  context tokens. The square of a mean stands for the mean square: windows must be short against the drift of the batch.

A window with an unknown (null) value is unusable, like one without a step.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import polars as pl

from features.errors import ModelError
from models.columns import names, numeric, require
from models.metrics import FloatArray, IntArray
from models.portable import StepLaw

PREFILL_COLUMNS = ("node", "n_steps", "busy_us", "new_tokens", "sum_t2", "sum_chunk_context")
DECODE_COLUMNS = ("node", "n_steps", "busy_us", "sequences", "tokens")


@dataclass(frozen=True, slots=True)
class StepRows:
    """Usable windows, sorted, so that the order of the input does not matter.

    `nodes`: names, sorted; `node`: index into them, shape (rows,). `steps`: per window. `seconds`: mean of a step.
    `x`: shape (rows, 4), per-step means of the law's terms (1, T, T², Σ chunk·context) or (1, n, t, t²), not clipped.
    `unusable`: windows without a step, work or time, or with an unknown value; they say nothing about a law.
    """

    nodes: tuple[str, ...]
    node: IntArray
    steps: FloatArray
    seconds: FloatArray
    x: FloatArray
    unusable: int


def read_prefill(rows: pl.DataFrame) -> StepRows:
    """Prefill windows. ModelError if a column is missing, not numeric, negative, or the squares impossible."""
    require(rows, PREFILL_COLUMNS, table="prefill_steps")
    steps, busy_us, tokens, tokens2, context = _numbers(rows, PREFILL_COLUMNS, "prefill_steps")
    usable = (steps >= 1) & (busy_us > 0) & (tokens > 0) & np.isfinite(tokens2) & np.isfinite(context)
    # Cauchy-Schwarz: no distribution of the tokens over the steps has a smaller sum of squares.
    if np.any(tokens2[usable] * steps[usable] < tokens[usable] ** 2 * (1.0 - 1e-9)):
        raise ModelError("`sum_t2 · n_steps >= new_tokens²` must hold", place="prefill_steps.sum_t2")
    per_step = np.maximum(steps, 1.0)
    x = np.stack([np.ones_like(steps), tokens / per_step, tokens2 / per_step, context / per_step], axis=1)
    return _sorted(names(rows, "node", table="prefill_steps"), steps, busy_us, x, usable)


def read_decode(rows: pl.DataFrame) -> StepRows:
    """Decode windows. ModelError if a column is missing, not numeric or negative."""
    require(rows, DECODE_COLUMNS, table="decode_steps")
    steps, busy_us, sequences, tokens = _numbers(rows, DECODE_COLUMNS, "decode_steps")
    usable = (steps >= 1) & (busy_us > 0) & (sequences > 0) & np.isfinite(tokens)
    x = np.stack([np.ones_like(steps), sequences, tokens, tokens * tokens], axis=1)
    return _sorted(names(rows, "node", table="decode_steps"), steps, busy_us, x, usable)


def predict(law: StepLaw, rows: StepRows, *, decode: bool) -> FloatArray:
    """Seconds of the mean step of each window under `law`, shape (rows,); bucket factors are taken at the mean size."""
    x1, x2, x3 = rows.x[:, 1], rows.x[:, 2], rows.x[:, 3]
    if decode:
        x2 = np.minimum(x2, law.token_cap)
        x3 = x2 * x2
    c = law.coef
    bucket = np.array([law.bucket_factor[bisect_right(law.bucket_edges, size)] for size in x1.tolist()])
    factor = np.array([law.node_factor.get(name, 1.0) for name in rows.nodes])
    seconds: FloatArray = (c[0] + c[1] * x1 + c[2] * x2 + c[3] * x3) * factor[rows.node] * bucket
    return seconds


def _numbers(rows: pl.DataFrame, columns: tuple[str, ...], table: str) -> list[FloatArray]:
    return [numeric(rows, name, table=table, least=0.0) for name in columns[1:]]


def _sorted(
    node_names: list[str], steps: FloatArray, busy_us: FloatArray, x: FloatArray, usable: np.typing.NDArray[np.bool_]
) -> StepRows:
    nodes = tuple(sorted({name for name, ok in zip(node_names, usable.tolist(), strict=True) if ok}))
    index = {name: at for at, name in enumerate(nodes)}
    node = np.array([index.get(name, -1) for name in node_names], dtype=np.int64)[usable]
    steps, busy_us, x = steps[usable], busy_us[usable], x[usable]
    order = np.lexsort((x[:, 3], x[:, 2], x[:, 1], busy_us, steps, node))
    seconds = busy_us * 1e-6 / steps
    return StepRows(nodes, node[order], steps[order], seconds[order], x[order], int(usable.size - order.size))
