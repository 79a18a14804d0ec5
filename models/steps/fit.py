"""Laws of engine steps from windows: physics by type of node, one factor a node, one small tree for the rest.

Errors are relative; rows out of line are set aside. A type with few rows leans on the nearest other one, scaled by what
their GPUs' data sheets say; a type without any is that one, scaled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from features.errors import ModelError
from models import robust_fit
from models.metrics import ApeSummary, BoolArray, FloatArray, IntArray, ape_summary, robust_sigma
from models.portable.steps import ANY, StepLaw, StepLaws
from models.portable.trees import NO_TREES
from models.steps import evaluate, physics, residual, spread
from models.steps.cells import StepCell, cells, split
from models.steps.physics import Shape, TypeFit
from models.steps.rows import StepRows, read_decode, read_prefill, sample

MIN_ROWS = 20
MOST_ROWS = 200_000
"""A fit takes this many rows, spread evenly over every node's; more would change nothing but its time."""
CAP_BEYOND_OBSERVED = 1.25
EXACT_FRAC, EXACT_SHARE = 0.002, 0.9
"""A plain law whose error is at most this at the 0.9 quantile, with this share of the rows in line, stays plain."""
MOST_SIGMA = 10.0
"""A law that is off by factors of thousands is no law, and its tail no number."""
UNMEASURED_SIGMA = {"prefill": 0.4, "decode": 0.15}
"""How far a law is off that was scaled by data sheets alone (A100 from H100 and the other way round)."""


@dataclass(frozen=True, slots=True)
class StepFit:
    """Laws with how they were found. `rows` = windows used, of which `trimmed` were set aside as out of line.

    `donor`: type -> the type that it leans on, the more the fewer rows it has. `error` and `cells` compare with the
    observed mean step of the windows that were kept, so they contain its noise. `physics_error`: without the trees;
    `boosted_error`: with the whole boosted model that the one tree of a law stands for.
    """

    laws: StepLaws
    rows: int
    steps: int
    trimmed: int
    unusable: int
    node_rows: Mapping[str, int]
    donor: Mapping[str, str | None]
    error: ApeSummary
    physics_error: ApeSummary
    boosted_error: ApeSummary
    cells: tuple[StepCell, ...]


def fit_prefill(
    rows: pl.DataFrame,
    *,
    node_type: Mapping[str, str] | None = None,
    node_effects: bool = True,
    residual: bool = True,
) -> StepFit:
    """Laws of a prefill step from windows, one row a window of a node (columns: `models.steps.rows`).

    `node_type`: node -> type (`models.gpus`), also of nodes and types without rows; others are of the type `*`.
    `node_effects=False` leaves every node at factor 1, `residual=False` every law without trees.
    ModelError with fewer than 20 usable windows.
    """
    read = read_prefill(rows)
    _enough(read, "prefill_steps", "request logs with prefill_started_at_us, prefill_finished_at_us and prefill_node")
    return _fit(read, math.inf, node_type or {}, node_effects=node_effects, with_trees=residual)


def fit_decode(
    rows: pl.DataFrame,
    *,
    capacity_tokens: float | None = None,
    node_type: Mapping[str, str] | None = None,
    node_effects: bool = True,
    residual: bool = True,
) -> StepFit:
    """Laws of a decode step from windows, one row a window of a node (columns: `models.steps.rows`).

    `capacity_tokens`: tokens that fit on the largest node, where laws are clipped; default 1.25 × the most observed.
    Other arguments as `fit_prefill`. ModelError with fewer than 20 usable windows.
    """
    if capacity_tokens is not None and not capacity_tokens > 0:
        raise ModelError("`capacity_tokens > 0` must hold", value=capacity_tokens)
    read = read_decode(rows)
    _enough(read, "decode_steps", "node telemetry with decode counters, polled every few seconds")
    cap = (
        max(float(read.terms[:, 1].max()) * CAP_BEYOND_OBSERVED, 1.0)
        if capacity_tokens is None
        else float(capacity_tokens)
    )
    return _fit(read, cap, node_type or {}, node_effects=node_effects, with_trees=residual)


def _enough(read: StepRows, table: str, source: str) -> None:
    if read.steps.size < MIN_ROWS:
        raise ModelError(
            f"`{table}` must have at least {MIN_ROWS} usable windows",
            value=f"{read.steps.size} usable, {read.unusable} without steps, work or time",
            place=table,
            hint=f"needs {source}",
        )


@dataclass(frozen=True, slots=True)
class _Physics:
    """Physics of all types as arrays by row."""

    shape: Shape
    by_type: Mapping[str, TypeFit]
    kept: BoolArray
    log_residual: FloatArray


def _fit(every: StepRows, cap: float, node_type: Mapping[str, str], *, node_effects: bool, with_trees: bool) -> StepFit:
    read = sample(every, MOST_ROWS)
    of_node = [node_type.get(name, ANY) for name in read.nodes]
    types = tuple(sorted({*of_node, *node_type.values()}))
    type_of = np.array([types.index(name) for name in of_node], dtype=np.int64)[read.node]
    most = int(np.bincount(type_of, minlength=len(types)).max())
    shape = Shape(read.kind, (), cap)
    found = _physics(shape, read, type_of, types, node_effects=node_effects)
    exact = _is_exact(found)
    if not exact:
        shape = Shape(read.kind, physics.knots_of(read.inputs[:, 0], most), cap)
        found = _physics(shape, read, type_of, types, node_effects=node_effects)
    plain = {name: shape.law(fit.weights, fit.beyond) for name, fit in found.by_type.items()}
    trees, boosted = dict.fromkeys(types, NO_TREES), np.ones_like(read.seconds)
    if with_trees and not exact:
        left = residual.fit(read.inputs, found.log_residual, found.kept, type_of, types)
        trees, boosted = dict(left.trees), left.boosted
    laws = {name: replace(law, trees=trees[name]) for name, law in plain.items()}
    factor = _node_factors(read, found, type_of, types)
    laws = {name: _with_spread(laws[name], found.by_type[name], read, found.kept, factor) for name in types}
    if ANY not in laws:
        laws[ANY] = laws[_most_measured(found.by_type)]
    shipped = StepLaws(laws, {name: kind for name, kind in sorted(node_type.items()) if kind != ANY}, factor)
    by_physics = StepLaws({**plain, ANY: plain.get(ANY, plain[types[0]])}, shipped.node_type, factor)
    kept = read.take(found.kept)
    said = evaluate.predict(by_physics, kept)
    return StepFit(
        laws=shipped,
        rows=int(every.steps.size),
        steps=int(every.steps.sum()),
        trimmed=int(read.steps.size - kept.steps.size),
        unusable=every.unusable,
        node_rows={name: int(np.count_nonzero(every.node == at)) for at, name in enumerate(every.nodes)},
        donor={name: found.by_type[name].donor for name in types},
        error=ape_summary(evaluate.predict(shipped, kept), kept.seconds),
        physics_error=ape_summary(said, kept.seconds),
        boosted_error=ape_summary(said * boosted[found.kept], kept.seconds),
        cells=cells(shipped, kept, truth=None, min_steps=1),
    )


def _physics(
    shape: Shape, read: StepRows, type_of: IntArray, types: tuple[str, ...], *, node_effects: bool
) -> _Physics:
    by_type = physics.fit_types(shape, read, type_of, types, node_effects=node_effects)
    kept = np.zeros(read.steps.size, dtype=np.bool_)
    log_residual = np.zeros(read.steps.size)
    for fit in by_type.values():
        kept[fit.rows], log_residual[fit.rows] = fit.kept, fit.residual
    kept |= _in_line_with_neighbours(read, log_residual, kept)
    return _Physics(shape, by_type, kept, log_residual)


def _is_exact(found: _Physics) -> bool:
    """The plain law leaves nothing open that knots or trees could explain."""
    off = np.abs(found.log_residual[found.kept])
    return float(np.mean(found.kept)) >= EXACT_SHARE and float(np.quantile(off, EXACT_SHARE)) <= EXACT_FRAC


def _in_line_with_neighbours(read: StepRows, log_residual: FloatArray, kept: BoolArray) -> BoolArray:
    """Rows that physics misses, though most rows of their node and cell agree with them: misfit, to be learned."""
    spread_of_all = robust_sigma(log_residual[kept])
    agree = np.zeros(kept.size, dtype=np.bool_)
    for members in split(read):
        if members.size >= spread.CELL_MIN_ROWS:
            off = np.abs(log_residual[members] - np.median(log_residual[members]))
            agree[members] = off <= robust_fit.TRIM_SIGMAS * max(spread_of_all, robust_fit.TRIM_FLOOR)
    return agree


def _node_factors(read: StepRows, found: _Physics, type_of: IntArray, types: tuple[str, ...]) -> dict[str, float]:
    """Node -> factor on its type's law."""
    factor = {}
    for at, name in enumerate(read.nodes):
        first = int(np.argmax(read.node == at))
        factor[name] = float(math.exp(found.by_type[types[type_of[first]]].log_factor[at]))
    return factor


def _with_spread(law: StepLaw, fit: TypeFit, read: StepRows, kept: BoolArray, factor: Mapping[str, float]) -> StepLaw:
    """The law with its sigma, tail and measured ranges."""
    unmeasured = UNMEASURED_SIGMA[read.kind]
    if not fit.rows.size:
        return replace(law, sigma=unmeasured)
    own = read.take(fit.rows)
    of_node = np.array([factor[name] for name in read.nodes])[own.node]
    log_residual = np.log(own.seconds / (evaluate.seconds_of(law, own) * of_node))
    noise = spread.sigma(own, log_residual, kept[fit.rows])
    if fit.donor is not None:
        noise = math.hypot(noise, unmeasured / math.sqrt(1.0 + fit.rows.size))
    if noise > MOST_SIGMA:
        raise ModelError(
            f"the spread of log(true / predicted) of a step must be at most {MOST_SIGMA}",
            value=noise,
            place=f"{read.kind}_steps.busy_us",
            hint="`n_steps` and `busy_us` must count the same steps, in steps and in microseconds",
        )
    seen = own.inputs[kept[fit.rows]]
    ranges = tuple((float(column.min()), float(column.max())) for column in seen.T)
    return replace(law, sigma=noise, tail=spread.tail(own, log_residual, noise), measured=ranges)


def _most_measured(by_type: Mapping[str, TypeFit]) -> str:
    return min(by_type, key=lambda name: (-by_type[name].rows.size, name))
