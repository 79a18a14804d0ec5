"""Load over time: how uneven the nodes of a role are in each window, and whether a node's excess swings or stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

Float64 = npt.NDArray[np.float64]

LAGS = 6
_FEWEST_WINDOWS = 8


def imbalance(windows: pl.DataFrame, window_s: float) -> list[dict[str, Any]]:
    """One row a role, metric and level over the rows {role, metric, window_us, node, value} of load windows.

    level `node`: every DP rank; `worker`: sums of a worker's ranks; `rank`: ranks within their worker. Columns:
    windows, nodes, cv_mean and cv_p95 (standard deviation over mean), max_over_mean, autocorrelation (lags 1..LAGS of a
    node's excess over the mean; None where it cannot be told), persistent_frac (part of the variance of the excess that
    is a node's own mean: a slow or favoured node, not a swing). Windows without load are left out.
    """
    found = []
    for (role, metric), rows in sorted(windows.partition_by("role", "metric", as_dict=True).items()):
        nodes = sorted(rows["node"].unique())
        grid = _grid(rows, nodes, window_s)
        workers = [node.rpartition("/")[0] or node for node in nodes]
        names = sorted(set(workers))
        levels = [("node", grid)]
        if len(names) < len(nodes):
            mine = [[at for at, worker in enumerate(workers) if worker == name] for name in names]
            levels.append(("worker", np.stack([grid[:, at].sum(axis=1) for at in mine], axis=1)))
            levels.append(("rank", np.concatenate([_within(grid[:, at]) for at in mine if len(at) > 1], axis=1)))
        for level, values in levels:
            summary = _summary(values)
            if summary:
                found.append({"role": role, "metric": metric, "level": level, "window_s": window_s, **summary})
    return found


def _grid(rows: pl.DataFrame, nodes: list[str], window_s: float) -> Float64:
    """Values of shape (windows, nodes), nan = not sampled; windows in between that nobody sampled are there too."""
    tick = rows["window_us"].to_numpy() // round(window_s * 1e6)
    first = int(tick.min())
    place = {node: at for at, node in enumerate(nodes)}
    grid = np.full((int(tick.max()) - first + 1, len(nodes)), np.nan)
    grid[tick - first, rows["node"].replace_strict(place, return_dtype=pl.Int64).to_numpy()] = rows["value"].to_numpy()
    return grid


def _within(values: Float64) -> Float64:
    """Ranks of one worker scaled so that their mean is 1 in every window; nan where the worker is idle."""
    mean = values.mean(axis=1, keepdims=True)
    found: Float64 = np.divide(values, mean, out=np.full_like(values, np.nan), where=mean > 0)
    return found


def _summary(values: Float64) -> dict[str, Any] | None:
    whole = values[~np.isnan(values).any(axis=1)]
    mean = whole.mean(axis=1) if whole.size else np.zeros(0)
    loaded = whole[mean > 0]
    if len(loaded) < 1 or loaded.shape[1] < 2:
        return None
    mean = loaded.mean(axis=1)
    cv = loaded.std(axis=1) / mean
    excess = values - values.mean(axis=1, keepdims=True)
    own = np.nanmean(excess, axis=0, keepdims=True)
    total = float(np.nanmean(excess**2))
    return {
        "windows": len(loaded),
        "nodes": loaded.shape[1],
        "cv_mean": float(cv.mean()),
        "cv_p95": float(np.quantile(cv, 0.95)),
        "max_over_mean": float((loaded.max(axis=1) / mean).mean()),
        "persistent_frac": float(np.mean(own**2)) / total if total > 0 else None,
        "autocorrelation": autocorrelation(excess - own) if len(loaded) >= _FEWEST_WINDOWS else None,
    }


def autocorrelation(series: Float64) -> list[float] | None:
    """Lags 1..LAGS of columns that have mean 0, pooled over columns, pairs with nan left out. None = no variance."""
    power = float(np.nanmean(series**2)) if series.size else 0.0
    if not power > 0:
        return None
    found = []
    for lag in range(1, LAGS + 1):
        product = series[lag:] * series[:-lag]
        known = product[~np.isnan(product)]
        found.append(float(known.mean()) / power if len(known) else 0.0)
    return found
