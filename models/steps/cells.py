"""Errors of step laws by cell: node × size of the batch × its tokens, in buckets that double."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from models.metrics import ApeSummary, FloatArray, IntArray, ape_summary
from models.portable.steps import StepLaws
from models.steps.evaluate import predict
from models.steps.rows import StepRows, read_decode, read_prefill


@dataclass(frozen=True, slots=True)
class StepCell:
    """Windows of one node whose mean step falls into one bucket of both sizes; buckets are named by their lower edge.

    Prefill: `size_from` in new tokens of a step, `context_from` in tokens before a chunk (mean over the step's tokens).
    Decode: `size_from` in running sequences, `context_from` in context tokens of all of them.
    """

    node: str
    size_from: int
    context_from: int
    steps: int
    error: ApeSummary


def prefill_cells(
    laws: StepLaws, rows: pl.DataFrame, *, truth: StepLaws | None = None, min_steps: int = 1
) -> tuple[StepCell, ...]:
    """Errors per cell of at least `min_steps` steps, against the observed mean step or `truth` at the same state."""
    return cells(laws, read_prefill(rows), truth=truth, min_steps=min_steps)


def decode_cells(
    laws: StepLaws, rows: pl.DataFrame, *, truth: StepLaws | None = None, min_steps: int = 1
) -> tuple[StepCell, ...]:
    """Errors per cell of at least `min_steps` steps, against the observed mean step or `truth` at the same state."""
    return cells(laws, read_decode(rows), truth=truth, min_steps=min_steps)


def cells(laws: StepLaws, rows: StepRows, *, truth: StepLaws | None, min_steps: int) -> tuple[StepCell, ...]:
    """`prefill_cells` or `decode_cells` of rows that are read already."""
    predicted = predict(laws, rows)
    true = rows.seconds if truth is None else predict(truth, rows)
    size, context = _sizes(rows)
    found = []
    for members in split(rows):
        steps = int(rows.steps[members].sum())
        if steps >= min_steps:
            first = members[0]
            found.append(
                StepCell(
                    node=rows.nodes[rows.node[first]],
                    size_from=_lower_edge(size[first]),
                    context_from=_lower_edge(context[first]),
                    steps=steps,
                    error=ape_summary(predicted[members], true[members]),
                )
            )
    return tuple(found)


def split(rows: StepRows) -> list[IntArray]:
    """Row indices of each cell; cells by node, size and context, ascending."""
    if not rows.node.size:
        return []
    size, context = _sizes(rows)
    keys = np.stack([rows.node, _bucket(size), _bucket(context)], axis=1)
    _, cell = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(cell.ravel(), kind="stable")
    return np.split(order, np.flatnonzero(np.diff(cell.ravel()[order])) + 1)


def over_cells(found: tuple[StepCell, ...]) -> ApeSummary:
    """One summary over cells, each cell counting once by its signed median error. ModelError if there are none."""
    error = np.array([1.0 + cell.error.signed_median_frac for cell in found])
    return ape_summary(error, np.ones_like(error))


def _sizes(rows: StepRows) -> tuple[FloatArray, FloatArray]:
    if rows.kind == "decode":
        return rows.terms[:, 0], rows.terms[:, 1]
    return rows.terms[:, 0], rows.terms[:, 2] / rows.terms[:, 0]


def _bucket(values: FloatArray) -> IntArray:
    """0 below 1, then 1 + floor(log2(value)), from the float's exponent and therefore exact at powers of two."""
    _, exponent = np.frexp(np.maximum(values, 0.5))
    bucket: IntArray = exponent.astype(np.int64)
    return bucket


def _lower_edge(value: float) -> int:
    bucket = int(_bucket(np.array([value]))[0])
    return 0 if bucket == 0 else 1 << (bucket - 1)
