"""What a router expects of every answer of a workload: the length law, lowered to rows.

The table's tokens depend on the request alone, so they are looked up ahead for all requests at once; offsets follow the
answers and are the twin's business (`engine_lengths`). Every number equals that of `LengthLaw` bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.portable.arrays import leaves, log1p
from models.portable.length import ALL, INPUTS, Arrival, LengthLaw
from models.portable.trees import table_of
from policies.twin.workload import NAMED, NUMBERS, Float64, Int32, Int64, Workload

MEDIAN = 0.5


@dataclass(frozen=True, slots=True)
class LengthRows:
    """A law for the n requests of a workload: L levels, G groups, offsets as the file has them.

    `base`: (n, L). `group`, `cap`, `learned`: (n,). `offset`, `pace`: (G, L).
    """

    law: LengthLaw
    base: Float64
    group: Int64
    cap: Float64
    learned: Int64
    offset: Float64
    pace: Float64


def length_rows(law: LengthLaw, classes: Sequence[str], workload: Workload) -> LengthRows:
    """The law for every request; `classes` by class index."""
    groups = list(law.offset)
    group = _groups(law, groups, classes, workload)
    level = np.array([law.group_level[name] for name in groups], np.float64)
    cell = leaves(law.table, law.table.roots[0], _inputs(law, level[group], workload)).astype(np.int64)
    limit = math.inf if law.limit_tokens is None else float(law.limit_tokens)
    arrivals = workload.arrivals
    return LengthRows(
        law=law,
        base=np.array(law.rows, np.float64)[cell],
        group=group,
        cap=np.fmin(_number(workload, "max_output_tokens"), limit),
        learned=np.ones(len(cell), np.int64) if arrivals is None else arrivals.learned.astype(np.int64),
        offset=np.array([law.offset[name] for name in groups], np.float64),
        pace=np.array([law.pace[name] for name in groups], np.float64),
    )


def constant_length(tokens: float, levels: Sequence[float] = (MEDIAN, 0.9)) -> LengthLaw:
    """The law of a router that expects the same of every answer and learns nothing."""
    levels = tuple(levels)
    ones, none = (1.0,) * len(levels), (0.0,) * len(levels)
    rows = ((tokens,) * len(levels),)
    return LengthLaw(levels, {ALL: 0.0}, table_of(0, (), (0.0,)), rows, {ALL: ones}, {ALL: none})


def booked_output(rows: LengthRows, levels: Sequence[float], class_index: Int32) -> Int32:
    """`tokens_at`, rounded up, at least 1."""
    return np.maximum(np.ceil(tokens_at(rows, levels, class_index)), 1).astype(np.int32)


def tokens_at(rows: LengthRows, levels: Sequence[float], class_index: Int32) -> Float64:
    """Output tokens at the level of each request's class under the file's offsets; shape (n,).

    ModelError for a level that the law does not have.
    """
    raised = np.maximum.accumulate(rows.base * rows.offset[rows.group], axis=1)
    place = np.array([rows.law.place(level) for level in levels], np.int64)[class_index]
    found: Float64 = np.minimum(raised[np.arange(len(place)), place], rows.cap)
    return found


def expected_output(law: LengthLaw, classes: Sequence[str], workload: Workload) -> Int32:
    """`booked_output` at the median of every class."""
    return booked_output(length_rows(law, classes, workload), [MEDIAN] * len(classes), workload.class_index)


def arrival_of(classes: Sequence[str], workload: Workload, at: int) -> Arrival:
    """What a router knows of one request when it arrives."""
    slo_class, prompt = classes[workload.class_index[at]], int(workload.prompt_tokens[at])
    if workload.arrivals is None:
        return Arrival(slo_class, prompt)
    known = workload.arrivals
    names = {
        name: None if code < 0 else str(known.names[code]) for name, code in zip(NAMED, known.named[at], strict=True)
    }
    numbers = {
        name: None if math.isnan(value) else float(value)
        for name, value in zip(NUMBERS, known.numbers[at], strict=True)
    }
    return Arrival(slo_class, prompt, **names, **numbers)  # type: ignore[arg-type]


def _groups(law: LengthLaw, groups: Sequence[str], classes: Sequence[str], workload: Workload) -> Int64:
    """Place of each request's group among `groups`: asked of the law once a class, app and band of the prompt."""
    band = np.searchsorted(np.array(law.prompt_edges, np.float64), workload.prompt_tokens, side="right")
    kinds = np.stack([workload.class_index, _codes(workload, "app"), band], axis=1)
    _, first, kind = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    place = {name: at for at, name in enumerate(groups)}
    found = [place[law.group(arrival_of(classes, workload, int(at)))] for at in first]
    return np.array(found, np.int64)[kind.reshape(-1)]


def _inputs(law: LengthLaw, group_level: Float64, workload: Workload) -> Float64:
    """`LengthLaw.inputs` of every request, shape (n, inputs)."""
    prompt, cached = workload.prompt_tokens.astype(np.float64), _number(workload, "cached_frac")
    columns = {
        "group_level": group_level,
        "log_prompt": log1p(prompt),
        "cached_frac": cached,
        "log_max_output": log1p(_number(workload, "max_output_tokens")),
        "turn": _number(workload, "turn"),
        "log_previous": log1p(_number(workload, "previous_output")),
        "log_session_mean": log1p(_number(workload, "session_mean_output")),
        "hour": _number(workload, "hour"),
        "log_recent": log1p(_number(workload, "recent_output")),
        "log_new": log1p(prompt * (1.0 - cached)),
        "tenant_effect": _effects(law.tenant_effect, workload, "tenant"),
        "model_effect": _effects(law.model_effect, workload, "model"),
    }
    return np.stack([columns[name] for name in INPUTS], axis=1)


def _effects(effects: Mapping[str, float], workload: Workload, name: str) -> Float64:
    names = [] if workload.arrivals is None else workload.arrivals.names.tolist()
    return np.array([*(effects.get(known, 0.0) for known in names), 0.0], np.float64)[_codes(workload, name)]


def _codes(workload: Workload, name: str) -> Int32:
    """Places among the workload's names, -1 = unknown."""
    if workload.arrivals is None:
        return np.full(workload.requests, -1, np.int32)
    return workload.arrivals.named[:, NAMED.index(name)]


def _number(workload: Workload, name: str) -> Float64:
    """A number of every arrival, NaN = unknown."""
    if workload.arrivals is None:
        return np.full(workload.requests, np.nan)
    return workload.arrivals.numbers[:, NUMBERS.index(name)]
