"""Compiled keys of `policies.families.llm_d_scorers`."""

from __future__ import annotations

import math

import numpy as np

from policies import draws
from policies.compiled import kernel, keys_kernel
from policies.families.draws_kernel import node_draw
from policies.families.llm_d_scorers import NEVER
from policies.families.parts_kernel import RUNNING, RUNNING_ON_P, WAITING_ON_D, WAITING_ON_P
from policies.families.power_of_two_kernel import kv_usage, own_requests
from policies.kernel_types import Float64, Side

EXPONENTIAL = np.array(draws.EXPONENTIAL)
QUEUE, RUNS, KV, LOAD, OWN, PREFIX, THRESHOLD, IDLE, BUSY, LENGTH, SCALE, PICKER = range(12)
COUNT = 12
RANDOM, WEIGHTED = 1, 2


@kernel
def _column_span(nodes: Float64, out: Float64, column: int) -> tuple[float, float]:
    low, high = math.inf, -math.inf
    for i in range(len(out)):
        value = nodes[i, column]
        if out[i] == math.inf or math.isnan(value):
            continue
        low = value if value < low else low
        high = value if value > high else high
    return low, high


@kernel
def _added(total: float, weight: float, score: float) -> float:
    if weight == 0.0:
        return total
    score = 0.0 if score < 0.0 else 1.0 if score > 1.0 else score
    return total + weight * score


@kernel
def _spread(value: float, low: float, high: float) -> float:
    return (high - value) / (high - low) if high > low else 1.0 + 0.0 * value


@keys_kernel
def keys(side: Side) -> None:
    """Keys of the candidates among P or D."""
    nodes, out = side.nodes, side.out
    own = side.params[COUNT * side.decode : COUNT * side.decode + COUNT]
    picker = own[PICKER]
    if picker == RANDOM:
        return
    waits = WAITING_ON_D if side.decode == 1 else WAITING_ON_P
    runs = RUNNING if side.decode == 1 else RUNNING_ON_P
    low_queue, high_queue = _column_span(nodes, out, waits)
    low_runs, high_runs = _column_span(nodes, out, runs)
    most = 0.0
    for i in range(len(out)):
        if out[i] != math.inf:
            most = max(most, own_requests(nodes, i, side.decode))
    full = side.prompt // side.block
    for i in range(len(out)):
        if out[i] == math.inf:
            continue
        waiting, busy = nodes[i, waits], own_requests(nodes, i, side.decode)
        total = _added(0.0, own[QUEUE], _spread(waiting, low_queue, high_queue))
        total = _added(total, own[RUNS], _spread(nodes[i, runs], low_runs, high_runs))
        total = _added(total, own[KV], 1.0 - kv_usage(nodes, i, side.decode))
        bound = own[THRESHOLD] if waiting > own[THRESHOLD] else waiting
        total = _added(total, own[LOAD], 0.5 * (1.0 - bound / own[THRESHOLD]))
        total = _added(total, own[OWN], 1.0 if busy <= own[IDLE] else (most - busy) / most * own[BUSY])
        ratio = float(side.cached[i] // side.block) / float(full) if full > 0 else 0.0
        length = float(side.cached[i]) / own[SCALE]
        length = 1.0 if length > 1.0 else length
        total = _added(total, own[PREFIX], own[LENGTH] * length + (1.0 - own[LENGTH]) * ratio)
        if picker == WEIGHTED:
            drawn = EXPONENTIAL[node_draw(side.seed, i, side.decode)]
            out[i] = NEVER if total == 0.0 else drawn / total
        else:
            out[i] = -total
