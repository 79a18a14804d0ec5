"""Laws of engine steps: physics × one factor a node × a shrunk residual by batch size, fitted together.

Prefill: 1, T, T², Σ chunk·context with coefficients >= 0. Decode: 1, n, t, t²; the curve over t may be concave, but it
never falls between 0 and `token_cap`, where it is clipped. Errors are relative; rows out of line are set aside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from features.errors import ModelError
from models import step_residual
from models.metrics import MAD_TO_SIGMA, ApeSummary, BoolArray, FloatArray, ape_summary, robust_sigma
from models.portable import StepLaw
from models.step_cells import StepCell, cells, split
from models.step_rows import StepRows, predict, read_decode, read_prefill

MIN_ROWS = 20
CAP_BEYOND_OBSERVED = 1.25
CELL_MIN_ROWS = 5


@dataclass(frozen=True, slots=True)
class StepFit:
    """A law with how it was found. `rows` = windows used, of which `trimmed` were set aside as out of line.

    `error` and `cells` compare with the observed mean step of the windows that were kept, so they contain its noise.
    """

    law: StepLaw
    rows: int
    steps: int
    trimmed: int
    unusable: int
    node_rows: Mapping[str, int]
    error: ApeSummary
    cells: tuple[StepCell, ...]


def fit_prefill(rows: pl.DataFrame, *, node_effects: bool = True, residual: bool = True) -> StepFit:
    """Law of a prefill step from windows, one row a window of a node (columns: `models.step_rows`).

    `node_effects=False` leaves every node at factor 1, `residual=False` every bucket.
    ModelError with fewer than 20 usable windows.
    """
    read = read_prefill(rows)
    _enough(read, "prefill_steps", "request logs with prefill_started_at_us, prefill_finished_at_us and prefill_node")
    found = step_residual.fit(read, read.x, node_effects=node_effects, residual=residual)
    coef = found.coef
    return _finish(read, found, (coef[0], coef[1], coef[2], coef[3]), 1e18, decode=False)


def fit_decode(
    rows: pl.DataFrame, *, capacity_tokens: float | None = None, node_effects: bool = True, residual: bool = True
) -> StepFit:
    """Law of a decode step from windows, one row a window of a node (columns: `models.step_rows`).

    `capacity_tokens`: tokens that fit on the largest node, where the law is clipped; default 1.25 × the most observed.
    `node_effects=False` leaves every node at factor 1, `residual=False` every bucket.
    ModelError with fewer than 20 usable windows.
    """
    if capacity_tokens is not None and not capacity_tokens > 0:
        raise ModelError("`capacity_tokens > 0` must hold", value=capacity_tokens)
    read = read_decode(rows)
    _enough(read, "decode_steps", "node telemetry with decode counters, polled every few seconds")
    cap = (
        max(float(read.x[:, 2].max()) * CAP_BEYOND_OBSERVED, 1.0) if capacity_tokens is None else float(capacity_tokens)
    )
    t = np.minimum(read.x[:, 2], cap)
    # A parabola that does not fall on [0, cap] has a slope that falls or rises along a line between two values >= 0,
    # one at each end: these two shapes with weights >= 0 are all of them.
    rising = t * t / (2.0 * cap)
    basis = np.stack([read.x[:, 0], read.x[:, 1], t - rising, rising], axis=1)
    found = step_residual.fit(read, basis, node_effects=node_effects, residual=residual)
    at_zero, at_cap = float(found.coef[2]), float(found.coef[3])
    coef = (float(found.coef[0]), float(found.coef[1]), at_zero, (at_cap - at_zero) / (2.0 * cap))
    return _finish(read, found, coef, cap, decode=True)


def _enough(read: StepRows, table: str, source: str) -> None:
    if read.steps.size < MIN_ROWS:
        raise ModelError(
            f"`{table}` must have at least {MIN_ROWS} usable windows",
            value=f"{read.steps.size} usable, {read.unusable} without steps, work or time",
            place=table,
            hint=f"needs {source}",
        )


def _finish(
    read: StepRows,
    found: step_residual.ResidualFit,
    coef: tuple[float, float, float, float],
    cap: float,
    *,
    decode: bool,
) -> StepFit:
    c0, c1, c2, c3 = (float(value) for value in coef)
    law = StepLaw(
        coef=(c0, c1, c2, c3),
        node_factor={name: float(math.exp(found.log_factor[at])) for at, name in enumerate(read.nodes)},
        bucket_edges=found.edges,
        bucket_factor=tuple(float(math.exp(value)) for value in found.log_bucket),
        token_cap=cap,
        sigma=_single_step_sigma(read, found.log_residual, found.kept, decode=decode),
    )
    kept = StepRows(
        read.nodes, read.node[found.kept], read.steps[found.kept], read.seconds[found.kept], read.x[found.kept], 0
    )
    return StepFit(
        law=law,
        rows=int(read.steps.size),
        steps=int(read.steps.sum()),
        trimmed=int(read.steps.size - kept.steps.size),
        unusable=read.unusable,
        node_rows={name: int(np.count_nonzero(read.node == at)) for at, name in enumerate(read.nodes)},
        error=ape_summary(predict(law, kept, decode=decode), kept.seconds),
        cells=cells(law, kept, decode=decode, truth=None, min_steps=1),
    )


def _single_step_sigma(read: StepRows, residual: FloatArray, kept: BoolArray, *, decode: bool) -> float:
    """Standard deviation of log(true/predicted) of one step.

    The noise of steps averages out over a window (its share grows back by √steps); the law's misfit, which all windows
    of a cell have in common, does not.
    """
    noise, misfit = [], []
    for members in split(read, decode=decode):
        inside = members[kept[members]]
        if inside.size >= CELL_MIN_ROWS:
            middle = float(np.median(residual[inside]))
            # The median took one degree of freedom of the cell.
            wider = math.sqrt(inside.size / (inside.size - 1.0))
            noise.append((residual[inside] - middle) * np.sqrt(read.steps[inside]) * wider)
            misfit.append(middle)
    if not noise:
        return robust_sigma(residual[kept] * np.sqrt(np.minimum(read.steps[kept], step_residual.FULL_WEIGHT_STEPS)))
    inside_cells = MAD_TO_SIGMA * float(np.median(np.abs(np.concatenate(noise))))
    return math.hypot(inside_cells, robust_sigma(np.array(misfit)))
