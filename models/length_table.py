"""How a length table is made: quantiles by class and prompt bin, conformal offsets, no crossing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from models.length_rows import LengthRows
from models.metrics import BoolArray, FloatArray, IntArray
from models.portable import LengthTable

PROMPT_BINS = 16
ROUNDS = 80
MIN_LEAF_ROWS = 40
OFFSET_PRIOR_ROWS = 50.0
EMPIRICAL_PRIOR_ROWS = 20.0
"""A class of n rows keeps n / (n + this) of its own offset (or quantile); the rest is that of all classes."""


def empirical(rows: LengthRows, levels: Sequence[float]) -> LengthTable:
    """Quantiles of the observed lengths: one prompt bin, classes shrunk to all, no offsets. For little data."""
    pooled = [_upper_quantile(rows.log_output, level) for level in levels]
    tokens = {"*": (tuple(math.exp(value) for value in pooled),)}
    for name, members in _by_class(rows).items():
        own = rows.log_output[members]
        keep = own.size / (own.size + EMPIRICAL_PRIOR_ROWS)
        mixed = [
            keep * _upper_quantile(own, level) + (1.0 - keep) * value
            for level, value in zip(levels, pooled, strict=True)
        ]
        tokens[name] = (tuple(math.exp(value) for value in mixed),)
    ones = (1.0,) * len(levels)
    return LengthTable(tuple(levels), (), tokens, dict.fromkeys(tokens, ones))


def distilled(older: LengthRows, newest: LengthRows, levels: Sequence[float], *, seed: int) -> LengthTable:
    """LightGBM quantiles of `older`, averaged into a table, with offsets that make the table cover `newest`."""
    edges = _prompt_edges(older.prompt_tokens)
    log_tokens = _log_table(older, edges, levels, seed=seed)
    log_offset = _log_offsets(newest, edges, log_tokens, levels)
    tokens, offset = {}, {}
    for name, table in log_tokens.items():
        factors = tuple(math.exp(value) for value in log_offset[name].tolist())
        tokens[name] = tuple(_ascending([math.exp(value) for value in row], factors) for row in table.tolist())
        offset[name] = factors
    return LengthTable(tuple(levels), edges, tokens, offset)


def _ascending(row: Sequence[float], factors: Sequence[float]) -> tuple[float, ...]:
    """`row` raised where its product with `factors` would fall from one level to the next.

    Offsets are fitted level by level and may let levels cross; the product is what a router uses.
    """
    settled = [row[0]]
    for value, factor in zip(row[1:], factors[1:], strict=True):
        floor = settled[-1] * factors[len(settled) - 1]
        raised = value if value * factor >= floor else floor / factor
        while raised * factor < floor:
            raised = math.nextafter(raised, math.inf)
        settled.append(raised)
    return tuple(settled)


def _by_class(rows: LengthRows) -> Mapping[str, BoolArray]:
    return {name: rows.slo_class == at for at, name in enumerate(rows.classes)}


def _prompt_edges(prompt_tokens: IntArray) -> tuple[int, ...]:
    """Whole numbers that split the rows evenly where prompts differ enough."""
    split = np.ceil(np.quantile(prompt_tokens, np.arange(1, PROMPT_BINS) / PROMPT_BINS))
    return tuple(sorted({int(edge) for edge in split if edge > prompt_tokens.min()}))


def _bins(prompt_tokens: IntArray, edges: Sequence[int]) -> IntArray:
    return np.searchsorted(np.array(edges, dtype=np.int64), prompt_tokens, side="right").astype(np.int64)


def _log_table(rows: LengthRows, edges: Sequence[int], levels: Sequence[float], *, seed: int) -> dict[str, FloatArray]:
    """Mean of the predicted log quantiles by class and bin, shape (bins, levels); `*` = all rows.

    A bin without rows of a class takes the prediction for that class at the bin's median prompt.
    """
    bins = _bins(rows.prompt_tokens, edges)
    count = len(edges) + 1
    middle = np.array([np.median(rows.prompt_tokens[bins == at]) for at in range(count)])
    asked = [_inputs(rows.slo_class, rows.prompt_tokens)]
    asked += [_inputs(np.full(count, at, dtype=np.int64), middle) for at in range(len(rows.classes))]
    predicted = _boosted(asked[0], rows.log_output, np.concatenate(asked), levels, seed=seed)
    at_rows = predicted[: rows.log_output.size]
    tables = {"*": _bin_means(at_rows, bins, count)}
    for at, (name, members) in enumerate(_by_class(rows).items()):
        start = rows.log_output.size + at * count
        fallback = predicted[start : start + count]
        tables[name] = _bin_means(at_rows[members], bins[members], count, fallback)
    return tables


def _inputs(slo_class: IntArray, prompt_tokens: IntArray | FloatArray) -> FloatArray:
    return np.stack([slo_class.astype(np.float64), np.log1p(prompt_tokens.astype(np.float64))], axis=1)


def _boosted(x: FloatArray, y: FloatArray, asked: FloatArray, levels: Sequence[float], *, seed: int) -> FloatArray:
    """Sorted quantiles of y at the rows of `asked`, shape (asked rows, levels)."""
    import lightgbm

    columns = []
    for level in levels:
        # One thread: on a busy machine OpenMP's spinning costs more than the fit, and sums keep their order.
        parameters = {
            "objective": "quantile",
            "alpha": level,
            "num_leaves": 15,
            "learning_rate": 0.1,
            "min_data_in_leaf": MIN_LEAF_ROWS,
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "seed": seed % 2**31,
            "verbosity": -1,
        }
        booster = lightgbm.train(parameters, lightgbm.Dataset(x, y), num_boost_round=ROUNDS)
        columns.append(np.asarray(booster.predict(asked, num_threads=1), dtype=np.float64))
    return np.sort(np.stack(columns, axis=1), axis=1)


def _bin_means(values: FloatArray, bins: IntArray, count: int, fallback: FloatArray | None = None) -> FloatArray:
    rows = np.bincount(bins, minlength=count)
    sums = [np.bincount(bins, weights=values[:, level], minlength=count) for level in range(values.shape[1])]
    means: FloatArray = np.stack(sums, axis=1) / np.maximum(rows, 1)[:, None]
    return means if fallback is None else np.where((rows > 0)[:, None], means, fallback)


def _log_offsets(
    newest: LengthRows, edges: Sequence[int], log_tokens: Mapping[str, FloatArray], levels: Sequence[float]
) -> dict[str, FloatArray]:
    """One-sided conformal offsets of the table: the quantile of log(output / predicted), shape (levels,) a class.

    See Romano, Patterson & Candès (2019), here one-sided and by class; a small class leans on all classes.
    """
    bins = _bins(newest.prompt_tokens, edges)
    own = log_tokens["*"][bins]
    above_all = newest.log_output[:, None] - own
    by_class = {}
    for name, members in _by_class(newest).items():
        by_class[name] = newest.log_output[members, None] - log_tokens[name][bins[members]]
    pooled = np.concatenate([*by_class.values(), above_all[newest.slo_class < 0]])
    common = _upper_quantiles(pooled, levels)
    offsets = {"*": _upper_quantiles(above_all, levels)}
    for name, above in by_class.items():
        keep = above.shape[0] / (above.shape[0] + OFFSET_PRIOR_ROWS)
        offsets[name] = keep * _upper_quantiles(above, levels) + (1.0 - keep) * common if above.size else common
    return offsets


def _upper_quantiles(values: FloatArray, levels: Sequence[float]) -> FloatArray:
    return np.array([_upper_quantile(values[:, at], level) for at, level in enumerate(levels)])


def _upper_quantile(values: FloatArray, level: float) -> float:
    """A new draw stays under this with probability >= `level`: order statistic ceil((n + 1)·level), at most n."""
    rank = min(values.size, math.ceil((values.size + 1) * level - 1e-9))
    return float(np.partition(values, rank - 1)[rank - 1])
