"""Parameters of a transfer law by turns: shares of the ports, then a step of robust least squares of the log errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.metrics import BoolArray, FloatArray, IntArray, robust_sigma
from models.transfer.model import (
    ALPHA,
    DESCRIPTOR,
    EFFICIENCY,
    FACTORS,
    HIDDEN_FRAC,
    LAST,
    Sample,
    Shared,
    fixed_s,
    resources,
    shared,
    tells,
    wire_s,
)
from models.transfer.solve import bounded, normal_equations

HUBER_SIGMAS = 1.5
TRIM_SIGMAS = 3.0
NOISE_FLOOR = 0.02
"""Log errors below are never out of line: without noise the spread would be zero."""
SEARCH_TURNS, POLISH_TURNS = 12, 25
SEARCH_STANDSTILL, STANDSTILL = 1e-4, 1e-7
"""Largest move of a log prediction at which turns end."""
ALPHA_PRIOR_ROWS = 4.0
"""A kind's alpha is drawn to the other's as if this many rows said so."""
PORT_PRIOR_ROWS = 4.0
SLOW_SIGMAS, FAST_SIGMAS = 4.0, 8.0
"""How many standard errors must speak for a port that is slower, and for one that is faster, than its nominal speed."""
NAMED_PORT = 0.03
"""A port whose log factor is smaller counts as normal."""
DESCRIPTOR_SIGMAS = 3.0
SHORTEST_S = 1e-6
SLOWEST_FRAC = 1e-3
"""Of the line's rate."""


@dataclass(frozen=True, slots=True)
class Found:
    """`seen`: rows of the sample that tell of their link; `hidden`: rows that ended with their prompt's compute, which
    tell of what comes after it; `kept`: those of both that are not out of line. `at_line`: parameters held by the
    line's rate. `port_rows`: rows that each port held up.
    """

    theta: FloatArray
    shared: Shared
    kept: BoolArray
    seen: BoolArray
    hidden: BoolArray
    descriptors_told: bool
    at_line: BoolArray
    port_rows: FloatArray


@dataclass(frozen=True, slots=True)
class _Rows:
    """The sample's rows under some parameters: what they predict, their log errors, and how these move, (rows, 7)."""

    predicted: FloatArray
    error: FloatArray
    value: FloatArray
    seen: BoolArray
    hidden: BoolArray


def descend(of: Sample, fitted: BoolArray) -> Found:
    """Parameters from the rows `fitted` of the sample.

    At first every error counts, the larger the less, and ports are drawn to normal. Then ports that were not found odd
    are normal, and rows out of line are set aside.
    """
    column, theta = _columns(of), _start(of, fitted)
    low, high, told = _bounds(of, fitted, theta)
    now = shared(of, theta)
    rows = _rows(of, theta, now, fitted)
    kept, polish, turns = fitted, False, 0
    kinds = np.unique(of.rows.kind[of.at][fitted])
    gram = np.zeros((len(theta), len(theta)))
    while True:
        kept, weight, sigma = _weights(rows, kept, polish=polish)
        gram, right = normal_equations(
            column, rows.value, rows.error + (rows.value * theta[column]).sum(axis=1), weight, len(theta)
        )
        free = high[FACTORS:] > low[FACTORS:]
        high[FACTORS:] = np.where(free, -float(theta[EFFICIENCY + kinds].max()), 0.0)
        cost = np.zeros((2, len(theta))) if polish else _penalty(gram, sigma)
        theta = bounded(_drawn(gram, polish=polish), right, theta, low, high, cost)
        now = shared(of, theta)
        before, rows = rows, _rows(of, theta, now, fitted)
        used = (before.seen & rows.seen) | (before.hidden & rows.hidden)
        moved = float(np.max(np.abs(np.log(rows.predicted[used] / before.predicted[used])), initial=0.0))
        turns += 1
        if polish and (moved < STANDSTILL or turns >= POLISH_TURNS):
            break
        if not polish and (moved < SEARCH_STANDSTILL or turns >= SEARCH_TURNS):
            # Ports that look normal are normal from here on; the others are no longer drawn to 1 by a penalty.
            normal = np.flatnonzero(np.abs(theta[FACTORS:]) < NAMED_PORT) + FACTORS
            told = told and _told(gram, sigma, theta)
            fixed = normal if told else np.append(normal, DESCRIPTOR)
            theta[fixed], low[fixed], high[fixed] = 0.0, 0.0, 0.0
            polish, turns = True, 0
            now = shared(of, theta)
            rows = _rows(of, theta, now, fitted)
    at_line = (theta >= high - 1e-12) & (high > low) & (np.arange(len(theta)) >= EFFICIENCY)
    at_line[LAST] = False
    return Found(theta, now, kept, rows.seen, rows.hidden, told, at_line, np.diag(gram)[FACTORS:])


def _rows(of: Sample, theta: FloatArray, now: Shared, fitted: BoolArray) -> _Rows:
    """Rows whose bytes need much longer than the compute that they overlap tell of the whole transfer; rows whose bytes
    need much less tell of what follows the compute; those between tell of neither.
    """
    duration, overlap = of.rows.duration_s[of.at], of.rows.overlap_s[of.at]
    wire, fixed = wire_s(of, theta, now), fixed_s(of.rows, theta)[of.at]
    seen = fitted & tells(of, wire)
    hidden = fitted & (wire < HIDDEN_FRAC * overlap)
    part = np.where(hidden, theta[LAST], 1.0)
    predicted = np.maximum(fixed + part * wire, SHORTEST_S)
    observed = np.maximum(duration - np.where(hidden, overlap, 0.0), SHORTEST_S)
    # A hidden row tells of alpha and of the last bytes, at speeds that the other rows tell.
    drain = np.where(hidden, 0.0, wire / predicted)
    value = [
        1.0 / predicted,
        np.nan_to_num(of.rows.descriptors[of.at]) / predicted,
        -drain,
        np.where(hidden, wire, 0.0) / predicted,
        *(-drain * now.bound_frac[:, k] for k in range(3)),
    ]
    return _Rows(predicted, np.log(observed / predicted), np.stack(value, axis=1), seen, hidden)


def _columns(of: Sample) -> IntArray:
    """Parameters that a row's prediction depends on, shape (rows, 7)."""
    kind = of.rows.kind[of.at]
    own = [ALPHA + kind, np.full_like(kind, DESCRIPTOR), EFFICIENCY + kind, np.full_like(kind, LAST)]
    return np.concatenate([np.stack(own, axis=1), resources(of)], axis=1)


def _bounds(of: Sample, fitted: BoolArray, theta: FloatArray) -> tuple[FloatArray, FloatArray, bool]:
    """Lowest and highest parameters, and whether there are descriptors to learn from."""
    low, high = np.zeros(len(theta)), np.zeros(len(theta))
    low[EFFICIENCY:LAST] = low[FACTORS:] = np.log(SLOWEST_FRAC)
    high[:DESCRIPTOR] = np.inf
    high[FACTORS:] = 1.0
    told = bool(np.nan_to_num(of.rows.descriptors[of.at])[fitted].max(initial=0.0) > 0)
    high[DESCRIPTOR] = np.inf if told else 0.0
    high[LAST] = 1.0 if bool((of.rows.overlap_s[of.at][fitted] > 0).any()) else 0.0
    return low, high, told


def _start(of: Sample, fitted: BoolArray) -> FloatArray:
    """Ports at their nominal speed and, by kind of path, the least time as alpha and the median speed of what is left.

    Only rows that surely tell of their link count, being longer than their overlap even at the line's rate; a kind
    without any starts at the line's rate.
    """
    theta = np.zeros(FACTORS + len(of.rows.ports))
    duration, line = of.rows.duration_s[of.at], of.rows.wire_bytes[of.at] / np.maximum(of.rows.share[of.at], 1e-9)
    for kind in range(2):
        mine = fitted & (of.rows.kind[of.at] == kind)
        sure = mine & tells(of, line)
        if sure.any():
            small = float(np.quantile(duration[sure] - np.minimum(line[sure], duration[sure]), 0.1))
            speed = line[sure] / np.maximum(duration[sure] - small, 0.1 * duration[sure])
            theta[ALPHA + kind] = small
            theta[EFFICIENCY + kind] = min(0.0, float(np.log(np.median(speed))))
        elif mine.any():
            left = duration[mine] - of.rows.overlap_s[of.at][mine]
            theta[ALPHA + kind] = max(0.0, float(np.quantile(left, 0.1)))
    return theta


def _weights(rows: _Rows, kept: BoolArray, *, polish: bool) -> tuple[BoolArray, FloatArray, float]:
    """Rows that are kept, their weights, and the spread of the log errors of whole transfers.

    The rest of a hidden transfer scatters more than a whole one: its squares weigh as much less.
    """
    weight, now = np.zeros(len(kept)), np.zeros(len(kept), np.bool_)
    unit = 0.0
    for used in (rows.seen, rows.hidden):
        if not used.any():
            continue
        among = used & kept if polish and (used & kept).any() else used
        sigma = max(NOISE_FLOOR, robust_sigma(rows.error[among]))
        unit = unit or sigma
        off = np.abs(rows.error - np.median(rows.error[among])) if polish else np.abs(rows.error)
        if polish:
            now |= used & (off <= TRIM_SIGMAS * sigma)
            weight[used & now] = (unit / sigma) ** 2
        else:
            now |= used
            weight[used] = (np.minimum(1.0, HUBER_SIGMAS * sigma / np.maximum(off, 1e-12)) * (unit / sigma) ** 2)[used]
    return now, weight, unit


def _drawn(gram: FloatArray, *, polish: bool) -> FloatArray:
    """The squares with what draws the kinds' alphas together and, in the end, ports to 1."""
    drawn = gram.copy()
    rows = np.maximum(1.0, np.diag(gram)[EFFICIENCY:LAST].sum())
    pull = ALPHA_PRIOR_ROWS * np.diag(gram)[ALPHA:DESCRIPTOR].sum() / rows
    if (np.diag(gram)[ALPHA:DESCRIPTOR] > 0).all():
        drawn[ALPHA : ALPHA + 2, ALPHA : ALPHA + 2] += pull * np.array([[1.0, -1.0], [-1.0, 1.0]])
    ports = np.arange(FACTORS, len(gram))
    drawn[ports, ports] += PORT_PRIOR_ROWS * (np.diag(gram)[ports] > 0) if polish else 0.0
    return drawn


def _penalty(gram: FloatArray, sigma: float) -> FloatArray:
    """Cost of a unit below and above 0, shape (2, parameters): of ports, while they are searched."""
    cost = np.zeros((2, len(gram)))
    error = sigma * np.sqrt(np.diag(gram)[FACTORS:])
    cost[:, FACTORS:] = np.stack([SLOW_SIGMAS * error, FAST_SIGMAS * error])
    return cost


def _told(gram: FloatArray, sigma: float, theta: FloatArray) -> bool:
    """Whether the rows tell descriptors from bytes: their seconds stand out of their standard error."""
    size = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    scaled = gram / np.outer(size, size) + 1e-9 * np.eye(len(gram))
    active = np.flatnonzero((theta != 0.0) | (np.arange(len(theta)) == DESCRIPTOR))
    inverse = np.linalg.inv(scaled[np.ix_(active, active)])
    at = int(np.searchsorted(active, DESCRIPTOR))
    error = sigma * float(np.sqrt(max(inverse[at, at], 0.0))) / size[DESCRIPTOR]
    return bool(theta[DESCRIPTOR] > DESCRIPTOR_SIGMAS * error)
