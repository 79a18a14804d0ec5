"""Rows of observed engine steps as arrays.

A row is a window of one node: one step, or what two readings of its counters enclose.

- prefill: `node, n_steps, busy_us, new_tokens, sum_t2, sum_chunk_context`: sums over the steps of T, T² and
  chunk·context (as in `StepLaw`), so a window of many steps is as exact as single steps. `prompts`, if it is there:
  prompts of the window; every step has one at least.
- decode: `node, n_steps, busy_us, sequences, tokens`: means over the window's steps of running sequences and of their
  context tokens. The square of a mean stands for the mean square: windows must be short against the drift of the batch.
  `drift`, if it is there: how much the batch changed within the window, relative; unknown = null.

A window with an unknown (null) value is unusable, like one without a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import polars as pl

from features.errors import ModelError
from models.columns import names, numeric, require
from models.metrics import BoolArray, FloatArray, IntArray

Kind: TypeAlias = Literal["prefill", "decode"]
PREFILL_COLUMNS = ("node", "n_steps", "busy_us", "new_tokens", "sum_t2", "sum_chunk_context")
DECODE_COLUMNS = ("node", "n_steps", "busy_us", "sequences", "tokens")


@dataclass(frozen=True, slots=True)
class StepRows:
    """Usable windows, sorted, so that the order of the input does not matter.

    `nodes`: names, sorted; `node`: index into them, shape (rows,). `steps`: per window. `seconds`: mean of a step.
    `terms`: shape (rows, k), means over the steps of T, T², Σ chunk·context, prompts, or of n and t.
    `sizes`: shape (rows, 2), T or n of all steps but one, and of that one. `inputs`: what the law's trees read, at the
    step in which the window's work is done. `drift`: NaN = unknown. `unusable`: windows without a step, work or time,
    or with an unknown value; they say nothing about a law.
    """

    kind: Kind
    nodes: tuple[str, ...]
    node: IntArray
    steps: FloatArray
    seconds: FloatArray
    terms: FloatArray
    sizes: FloatArray
    inputs: FloatArray
    drift: FloatArray
    unusable: int

    def take(self, rows: IntArray | BoolArray) -> StepRows:
        """Some of the rows, in their order."""
        return StepRows(
            self.kind,
            self.nodes,
            self.node[rows],
            self.steps[rows],
            self.seconds[rows],
            self.terms[rows],
            self.sizes[rows],
            self.inputs[rows],
            self.drift[rows],
            self.unusable,
        )


def read(kind: Kind, rows: pl.DataFrame) -> StepRows:
    """Windows of one kind. ModelError if a column is missing, not numeric, negative, or the squares impossible."""
    return read_prefill(rows) if kind == "prefill" else read_decode(rows)


def read_prefill(rows: pl.DataFrame) -> StepRows:
    """Prefill windows. ModelError if a column is missing, not numeric, negative, or the squares impossible."""
    require(rows, PREFILL_COLUMNS, table="prefill_steps")
    steps, busy_us, tokens, tokens2, context = _numbers(rows, PREFILL_COLUMNS, "prefill_steps")
    usable = (steps >= 1) & (busy_us > 0) & (tokens > 0) & np.isfinite(tokens2) & np.isfinite(context)
    # Cauchy-Schwarz: no distribution of the tokens over the steps has a smaller sum of squares.
    if np.any(tokens2[usable] * steps[usable] < tokens[usable] ** 2 * (1.0 - 1e-9)):
        raise ModelError("`sum_t2 · n_steps >= new_tokens²` must hold", place="prefill_steps.sum_t2")
    prompts = _optional(rows, "prompts", "prefill_steps")
    count = np.maximum(steps, 1.0)
    terms = np.stack([tokens, tokens2, context, np.fmax(prompts, count)], axis=1) / count[:, None]
    heavy = np.divide(tokens2, tokens, out=np.ones_like(tokens), where=tokens > 0)
    inputs = np.stack([heavy, heavy * terms[:, 2] / np.maximum(terms[:, 0], 1.0), terms[:, 3]], axis=1)
    sizes = _two_sizes(terms[:, 0], terms[:, 1], count)
    node = names(rows, "node", table="prefill_steps")
    return _sorted("prefill", node, steps, busy_us, (terms, sizes, inputs, np.zeros_like(steps)), usable)


def read_decode(rows: pl.DataFrame) -> StepRows:
    """Decode windows. ModelError if a column is missing, not numeric or negative."""
    require(rows, DECODE_COLUMNS, table="decode_steps")
    steps, busy_us, sequences, tokens = _numbers(rows, DECODE_COLUMNS, "decode_steps")
    usable = (steps >= 1) & (busy_us > 0) & (sequences > 0) & np.isfinite(tokens)
    terms = np.stack([sequences, tokens], axis=1)
    sizes = np.stack([sequences, sequences], axis=1)
    node = names(rows, "node", table="decode_steps")
    drift = _optional(rows, "drift", "decode_steps")
    return _sorted("decode", node, steps, busy_us, (terms, sizes, terms.copy(), drift), usable)


def sample(rows: StepRows, most: int) -> StepRows:
    """At most about `most` rows, spread evenly over each node's, nodes with few rows whole; always the same ones."""
    if rows.steps.size <= most:
        return rows
    count = np.bincount(rows.node, minlength=len(rows.nodes))
    share = _even_share(count, most)
    stride = np.maximum(1.0, count / max(share, 1.0))
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    rank = np.arange(rows.steps.size) - first[rows.node]  # rows are sorted by node
    taken = np.floor((rank + 1) / stride[rows.node]) > np.floor(rank / stride[rows.node])
    return rows.take(taken)


def _even_share(count: IntArray, most: int) -> float:
    """Rows that a node may keep so that all keep `most`: what small nodes leave goes to the others."""
    left, nodes = float(most), count.size
    for rows in np.sort(count).tolist():
        if rows * nodes > left:
            return left / nodes
        left, nodes = left - rows, nodes - 1
    return float(most)


def _two_sizes(mean: FloatArray, mean_square: FloatArray, count: FloatArray) -> FloatArray:
    """Sizes of the steps, if all but the last, which is smaller, have one size: they follow from mean and square."""
    others = np.maximum(count - 1.0, 1.0)
    apart = np.sqrt(np.maximum(mean_square - mean * mean, 0.0) / others)
    return np.stack([mean + apart, np.maximum(mean - others * apart, 0.0)], axis=1)


def _numbers(rows: pl.DataFrame, columns: tuple[str, ...], table: str) -> list[FloatArray]:
    return [numeric(rows, name, table=table, least=0.0) for name in columns[1:]]


def _optional(rows: pl.DataFrame, name: str, table: str) -> FloatArray:
    if name not in rows.columns:
        return np.full(rows.height, np.nan)
    return numeric(rows, name, table=table, least=0.0)


def _sorted(
    kind: Kind,
    node_names: list[str],
    steps: FloatArray,
    busy_us: FloatArray,
    values: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    usable: BoolArray,
) -> StepRows:
    nodes = tuple(sorted({name for name, ok in zip(node_names, usable.tolist(), strict=True) if ok}))
    index = {name: at for at, name in enumerate(nodes)}
    node = np.array([index.get(name, -1) for name in node_names], dtype=np.int64)[usable]
    steps, busy_us = steps[usable], busy_us[usable]
    terms, sizes, inputs, drift = (value[usable] for value in values)
    order = np.lexsort((drift, busy_us, steps, *terms.T[::-1], node))
    return StepRows(
        kind,
        nodes,
        node[order],
        steps[order],
        (busy_us * 1e-6 / np.maximum(steps, 1.0))[order],
        terms[order],
        sizes[order],
        inputs[order],
        drift[order],
        int(usable.size - order.size),
    )
