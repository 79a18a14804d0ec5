"""Least squares with bounds and with penalties on how far a coefficient is from 0."""

from __future__ import annotations

import numpy as np

from models.metrics import FloatArray, IntArray

SWEEPS = 4000
STANDSTILL = 1e-13


def normal_equations(
    column: IntArray, value: FloatArray, target: FloatArray, weight: FloatArray, columns: int
) -> tuple[FloatArray, FloatArray]:
    """XᵀWX and XᵀWy of a matrix with few entries a row: row i has value[i, k] in column[i, k]; both shape (rows, k).

    Sums run in the order of the rows, so equal input gives equal bits.
    """
    gram = np.zeros(columns * columns)
    right = np.zeros(columns)
    for a in range(column.shape[1]):
        weighted = weight * value[:, a]
        right += np.bincount(column[:, a], weights=weighted * target, minlength=columns)
        for b in range(column.shape[1]):
            at = column[:, a] * columns + column[:, b]
            gram += np.bincount(at, weights=weighted * value[:, b], minlength=columns * columns)
    return gram.reshape(columns, columns), right


def bounded(
    gram: FloatArray, right: FloatArray, start: FloatArray, low: FloatArray, high: FloatArray, penalty: FloatArray
) -> FloatArray:
    """Minimises ½ xᵀGx - xᵀr + Σ penalty(x) over low <= x <= high, one coordinate after the other.

    `penalty`, shape (2, columns): cost of one unit below and above 0. A column that nothing tells of stays at `start`.
    """
    size = np.sqrt(np.maximum(np.diag(gram), 0.0))
    told = size > 0
    scale = np.where(told, size, 1.0)
    g = gram / np.outer(scale, scale)
    x, r = np.clip(start, low, high) * scale, right / scale
    lowest, highest = low * scale, high * scale
    below, above = penalty / scale
    slope = g @ x - r
    places = np.flatnonzero(told)
    for _ in range(SWEEPS):
        moved = 0.0
        for j in places:
            free = x[j] - slope[j]
            if free > above[j]:
                free -= above[j]
            elif free < -below[j]:
                free += below[j]
            else:
                free = 0.0
            now = min(max(free, lowest[j]), highest[j])
            step = now - x[j]
            if step != 0.0:
                slope += step * g[:, j]
                x[j] = now
                moved = max(moved, abs(step))
        if moved <= STANDSTILL * max(1.0, float(np.max(np.abs(x), initial=0.0))):
            break
    return x / scale
